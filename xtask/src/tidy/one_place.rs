//! The engine of the "one place" rules: a few spellings, the rooms that may use them, everything else a finding.

use super::source::{Source, in_tests_folder};
use super::tokens::{Token, path_at, separator_at};
use crate::finding::Finding;

pub(crate) const SYSTEM: &str = "crates/heddle/src/system/";
pub(crate) const BENCH: &str = "bench/";
pub(crate) const SIM: &str = "sim/";
pub(crate) const XTASK: &str = "xtask/";

/// How a forbidden thing is spelled in tokens.
pub(crate) enum Spelling {
    /// `a::b`, called, imported or handed on.
    Path(&'static [&'static str]),
    /// `a::b()` without arguments, or imported to be called so.
    EmptyCall(&'static [&'static str]),
    /// `a::` and whatever follows.
    Root(&'static str),
    /// `a!`
    Macro(&'static str),
}

pub(crate) struct OnePlace {
    pub(crate) rule: &'static str,
    pub(crate) spellings: &'static [Spelling],
    /// A folder ends with `/`; anything else is one file. `tests/` folders may always.
    pub(crate) rooms: &'static [&'static str],
    pub(crate) build_scripts_may: bool,
    pub(crate) test_modules_may: bool,
    pub(crate) advice: &'static str,
}

impl OnePlace {
    pub(crate) fn check(&self, source: &Source) -> Vec<Finding> {
        if self.allows(&source.path) {
            return Vec::new();
        }
        let tokens = &source.tokens;
        let mut findings = Vec::new();
        for at in 0..tokens.len() {
            let Some((spelled, end)) = self.spellings.iter().find_map(|s| s.at(tokens, at)) else {
                continue;
            };
            let line = tokens[end - 1].line;
            if !(self.test_modules_may && source.is_test_line(line)) {
                let advice = format!("`{spelled}`: {}", self.advice);
                findings.push(Finding::new(&source.path, line, self.rule, advice));
            }
        }
        findings
    }

    fn allows(&self, path: &str) -> bool {
        in_tests_folder(path)
            || in_rooms(path, self.rooms)
            || (self.build_scripts_may && is_build_script(path))
    }
}

impl Spelling {
    /// The spelling found at `at` and the index after it.
    fn at(&self, tokens: &[Token], at: usize) -> Option<(String, usize)> {
        match self {
            Self::Path(segments) => {
                path_at(tokens, at, segments).map(|found| (segments.join("::"), found.end))
            }
            Self::EmptyCall(segments) => {
                let found = path_at(tokens, at, segments)?;
                let imported = found.in_list
                    || tokens
                        .get(found.end)
                        .is_some_and(|next| next.is_punct(';') || next.is_ident("as"));
                (imported || empty_call_at(tokens, found.end))
                    .then(|| (format!("{}()", segments.join("::")), found.end))
            }
            Self::Root(name) => (tokens[at].is_ident(name) && separator_at(tokens, at + 1))
                .then(|| (format!("{name}::"), at + 1)),
            Self::Macro(name) => {
                let bang = tokens.get(at + 1).is_some_and(|next| next.is_punct('!'));
                (bang && tokens[at].is_ident(name)).then(|| (format!("{name}!"), at + 1))
            }
        }
    }
}

fn empty_call_at(tokens: &[Token], at: usize) -> bool {
    let opens = tokens.get(at).is_some_and(|token| token.opens('('));
    let closes = tokens.get(at + 1).is_some_and(|token| token.closes(')'));
    opens && closes
}

pub(crate) fn in_rooms(path: &str, rooms: &[&str]) -> bool {
    rooms.iter().any(|room| {
        if room.ends_with('/') {
            path.starts_with(room)
        } else {
            path == *room
        }
    })
}

/// `build.rs` beside a manifest; a `build.rs` under `src/` is an ordinary module.
fn is_build_script(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["crates", _, file] | [_, file] => file == "build.rs",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{OnePlace, Spelling, is_build_script};
    use crate::tidy::source::Source;

    const RULE: OnePlace = OnePlace {
        rule: "sample",
        spellings: &[
            Spelling::Path(&["Clock", "now"]),
            Spelling::EmptyCall(&["io", "stdout"]),
            Spelling::Root("dice"),
            Spelling::Macro("shout"),
        ],
        rooms: &["crates/a/src/room/", "crates/a/src/door.rs"],
        build_scripts_may: true,
        test_modules_may: true,
        advice: "go elsewhere",
    };

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = Source::parse(path, text.to_owned()).unwrap();
        RULE.check(&source)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn every_spelling_is_caught() {
        for (code, spelled) in [
            ("let x = Clock::now();", "Clock::now"),
            ("let x = call(Clock::now);", "Clock::now"),
            ("wrap!(Clock::now());", "Clock::now"),
            ("io::stdout().lock();", "io::stdout()"),
            ("use std::io::stdout;", "io::stdout()"),
            ("use std::io::{self, stdout};", "io::stdout()"),
            ("dice::roll(6);", "dice::"),
            ("shout!(\"x\");", "shout!"),
        ] {
            let text = format!("fn f() {{\n    {code}\n}}\n");
            let expected = format!("crates/a/src/x.rs:2: sample: `{spelled}`: go elsewhere");
            assert_eq!(found("crates/a/src/x.rs", &text), [expected], "{code}");
        }
    }

    #[test]
    fn words_that_only_look_alike_pass() {
        let text = "// Clock::now dice::roll\n/// io::stdout() shout!\nfn f() {\n    \
            let s = \"Clock::now()\"; logs.with_writer(io::stdout); dice(); shout(); my::Clock::later();\n}\n";
        assert_eq!(found("crates/a/src/x.rs", text), [] as [String; 0]);
    }

    #[test]
    fn rooms_test_folders_test_modules_and_build_scripts_may() {
        let text = "fn f() { shout!() }\n";
        for path in [
            "crates/a/src/room/x.rs",
            "crates/a/src/door.rs",
            "crates/a/tests/x.rs",
            "crates/a/build.rs",
        ] {
            assert!(found(path, text).is_empty(), "{path}");
        }
        for path in [
            "crates/a/src/room.rs",
            "crates/a/src/door.rs/x.rs",
            "crates/a/src/build.rs",
        ] {
            assert!(!found(path, text).is_empty(), "{path}");
        }
        let in_module = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert!(found("crates/a/src/x.rs", &in_module).is_empty());
    }

    #[test]
    fn a_build_script_stands_beside_a_manifest() {
        assert!(is_build_script("crates/a/build.rs") && is_build_script("bench/build.rs"));
        assert!(!is_build_script("crates/a/src/cli/build.rs"));
    }
}
