//! Path patterns of reservations: `*` and `?` inside a name, `**` for any number of names. Pure; never backtracks.

/// A pattern, and a path that it is held against, has at most this many bytes.
const PATTERN_BYTES_MAX: usize = 512;

/// A pattern from the root of the repository on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    names: Vec<String>,
}

impl Glob {
    /// A plain path also means everything below it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let clean = text.strip_prefix("./").unwrap_or(text);
        let clean = clean.strip_suffix('/').unwrap_or(clean);
        if clean.is_empty() || clean.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "a pattern has 1 to {PATTERN_BYTES_MAX} bytes, for example src/parser/** or docs/*.md"
            ));
        }
        let is_bad = |name: &str| {
            matches!(name, "" | "." | "..")
                || name.chars().any(|c| c == '\\' || c.is_control())
                || (name.contains("**") && name != "**")
        };
        if clean.split('/').any(is_bad) {
            return Err(format!(
                "{text:?} is no pattern: names with / between them from the repository's root on, without . and .., and ** only as a whole name"
            ));
        }
        if has_choice(clean) {
            return Err(format!(
                "{text:?} has a choice in braces, which patterns do not know: reserve each of them on its own"
            ));
        }
        let mut names: Vec<String> = clean.split('/').map(str::to_owned).collect();
        names.dedup_by(|a, b| a == "**" && b == "**");
        if !clean.contains(['*', '?']) {
            names.push("**".to_owned());
        }
        Ok(Self {
            text: clean.to_owned(),
            names,
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        let own: Vec<&str> = self.names.iter().map(String::as_str).collect();
        meet(&own, &names, &"**", |a, b| name_matches(a, b), false)
    }

    /// Whether there can be a path that both match.
    pub fn overlaps(&self, other: &Self) -> bool {
        let own: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let others: Vec<&str> = other.names.iter().map(String::as_str).collect();
        meet(&own, &others, &"**", |a, b| names_overlap(a, b), true)
    }
}

/// `{a,b}` as shells have it. A brace alone is part of a name, as in `{{project}}`.
fn has_choice(text: &str) -> bool {
    let mut opens = text.match_indices('{');
    opens.any(|(at, _)| {
        let inside = &text[at + 1..];
        let end = inside.find(['{', '}']).unwrap_or(0);
        inside[..end].contains(',') && inside[end..].starts_with('}')
    })
}

fn name_matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    meet(&pattern, &name, &'*', |a, b| *a == '?' || a == b, false)
}

fn names_overlap(a: &str, b: &str) -> bool {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let one = |a: &char, b: &char| *a == '?' || *b == '?' || a == b;
    meet(&a, &b, &'*', one, true)
}

/// Whether two sequences can be the same when `many` stands for any number of elements: a table of all
/// pairs of prefixes, so the cost is their product whatever the pattern is.
fn meet<T: PartialEq>(
    left: &[T],
    right: &[T],
    many: &T,
    same: impl Fn(&T, &T) -> bool,
    right_has_many: bool,
) -> bool {
    let width = right.len() + 1;
    let mut reached = vec![false; (left.len() + 1) * width];
    reached[0] = true;
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            let skips_left = i > 0 && left[i - 1] == *many;
            let skips_right = right_has_many && j > 0 && right[j - 1] == *many;
            let mut can = reached[i * width + j];
            if i > 0 && j > 0 {
                let one = skips_left || skips_right || same(&left[i - 1], &right[j - 1]);
                can |= one && reached[(i - 1) * width + j - 1];
            }
            // The many takes one more of the other side, or none at all.
            can |= skips_left && j > 0 && reached[i * width + j - 1];
            can |= skips_left && i > 0 && reached[(i - 1) * width + j];
            can |= skips_right && i > 0 && reached[(i - 1) * width + j];
            can |= skips_right && j > 0 && reached[i * width + j - 1];
            reached[i * width + j] = can;
        }
    }
    reached[left.len() * width + right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        Glob::parse(text).unwrap()
    }

    #[test]
    fn patterns_match_paths_as_people_expect() {
        for (pattern, path, expected) in [
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("src/**", "src/deep/a.rs", true),
            ("src/**", "src", true),
            ("src/**/a.rs", "src/a.rs", true),
            ("src/**/a.rs", "src/x/y/a.rs", true),
            ("**/*.md", "README.md", true),
            ("**/*.md", "docs/x.md", true),
            ("src", "src/anything/at/all", true),
            ("src/", "src/x", true),
            ("./src", "src/x", true),
            ("src", "srcs/x", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("docs/ünï*", "docs/ünïcode", true),
            ("src/[ab].rs", "src/a.rs", false),
        ] {
            assert_eq!(glob(pattern).matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_overlap_when_a_path_can_be_of_both() {
        for (a, b, expected) in [
            ("src/**", "src/a.rs", true),
            ("src/*.rs", "src/a.*", true),
            ("src/*.rs", "src/*.md", false),
            ("src/**", "docs/**", false),
            ("**/*.md", "docs", true),
            ("src/a", "src/ab", false),
            ("a?c", "*bc", true),
            ("**", "anything/here", true),
        ] {
            assert_eq!(glob(a).overlaps(&glob(b)), expected, "{a} {b}");
            assert_eq!(glob(b).overlaps(&glob(a)), expected, "{b} {a}");
        }
    }

    #[test]
    fn hostile_patterns_are_refused_or_cheap() {
        for bad in [
            "",
            "/",
            "/etc",
            "../x",
            "a/../b",
            "a//b",
            "a\\b",
            "a\nb",
            "a**",
            ".",
            "src/{a,b}.rs",
            "{src,docs}/**",
            "{{x}/{a,b}}",
        ] {
            assert!(Glob::parse(bad).is_err(), "{bad:?}");
        }
        assert!(glob("{{cookiecutter.name}}/a, b").matches("{{cookiecutter.name}}/a, b"));
        assert!(Glob::parse(&"a".repeat(513)).is_err());
        let stars = "*a".repeat(250);
        assert!(glob(&stars).matches(&"a".repeat(400)));
        assert!(!glob(&stars).matches(&"b".repeat(400)));
    }
}
