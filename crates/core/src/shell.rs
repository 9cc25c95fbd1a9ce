//! Words of a command that a person pastes into a shell.

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let word = word.replace('\'', r"'\''");
    // Commands stand between backticks in our sentences: one in a word would end them half way.
    format!("'{}'", word.replace('`', r#"'"$(printf '\140')"'"#))
}

/// Options with their values, each behind a space; those without a value are left out. A value that looks like an option
/// itself is tied to its own.
pub fn options(all: &[(&str, &str)]) -> String {
    let given = all.iter().filter(|(_, value)| !value.is_empty());
    let said = given.map(|(name, value)| {
        let tie = if value.starts_with('-') { '=' } else { ' ' };
        format!(" {name}{tie}{}", quoted(value))
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_an_option_is_tied_to_its_own() {
        let all = [("--key", "--json"), ("--op", "de ploy"), ("--run", "")];
        assert_eq!(options(&all), " --key=--json --op 'de ploy'");
    }

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        for (word, expected) in [
            ("build-1", "build-1"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("a`b", r#"'a'"$(printf '\140')"'b'"#),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
