//! Why a parameter of a route is refused, in a person's words: which one, what it says, and what it should.

use heddle_wire::from_wire;
use heddle_wire::problem::Problem;

const NEXT: &str =
    "Correct it and ask again; GET /v1/openapi.json lists the parameters of every route.";

/// `words` are those of the reader of queries: the name, a colon and what it missed there.
pub(super) fn refused(uri: &http::Uri, words: &str) -> Problem {
    let words = words
        .strip_prefix("Failed to deserialize query string: ")
        .unwrap_or(words);
    let detail = match words.split_once(": ") {
        Some((name, why)) => of_one(uri, name, why),
        None => of_all(words),
    };
    from_wire::invalid(detail).next(NEXT)
}

/// What is wrong with the list of them: the words have the name.
fn of_all(words: &str) -> String {
    for (begin, is) in [
        ("missing field ", "missing"),
        ("duplicate field ", "given twice"),
    ] {
        if let Some(name) = words.strip_prefix(begin) {
            return format!("the parameter {} is {is}", name.replace('`', ""));
        }
    }
    words.to_owned()
}

fn of_one(uri: &http::Uri, name: &str, why: &str) -> String {
    if why.starts_with("unknown field") {
        let known = why.split_once("expected ").map_or("", |(_, known)| known);
        let known = known.trim_start_matches("one of ").replace('`', "");
        return match known.as_str() {
            "" => format!("this route has no parameter {name}"),
            known => format!("this route has no parameter {name}; it takes {known}"),
        };
    }
    let wanted = if why.contains("`true` or `false`") {
        "true or false"
    } else if is_about_a_number(why) {
        "a whole number"
    } else {
        return format!("the parameter {name}: {why}");
    };
    let said = said(uri, name).unwrap_or_default();
    format!("the parameter {name} is {said:?}; it takes {wanted}")
}

/// In the words of the standard library.
fn is_about_a_number(why: &str) -> bool {
    [
        "invalid digit found",
        "cannot parse integer",
        "number too large",
        "number too small",
    ]
    .iter()
    .any(|words| why.starts_with(words))
}

/// As it was sent, and no more of it than helps.
fn said(uri: &http::Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&');
    let value = pairs
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))?;
    Some(value.chars().take(40).collect())
}
