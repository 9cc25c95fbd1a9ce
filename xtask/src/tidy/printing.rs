//! Rule `printing`: the terminal belongs to `cli/ui`; on a stdio door a stray line breaks the protocol.

use super::one_place::{BENCH, OnePlace, Spelling, XTASK};
use super::source::Source;
use crate::finding::Finding;

const PLACE: OnePlace = OnePlace {
    rule: "printing",
    spellings: &[
        Spelling::Macro("println"),
        Spelling::Macro("print"),
        Spelling::Macro("eprintln"),
        Spelling::Macro("eprint"),
        Spelling::EmptyCall(&["io", "stdout"]),
        Spelling::EmptyCall(&["io", "stderr"]),
    ],
    rooms: &[
        "crates/heddle/src/cli/ui.rs",
        "crates/heddle/src/cli/ui/",
        BENCH,
        XTASK,
    ],
    // A build script speaks to cargo by printing.
    build_scripts_may: true,
    test_modules_may: true,
    advice: "return the text, or log it; only crates/heddle/src/cli/ui prints",
};

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    PLACE.check(source)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    const BAD: &str = "fn f() {\n    println!(\"x\");\n    print!(\"x\");\n    eprintln!(\"x\");\n    \
        eprint!(\"x\");\n    std::io::stdout().flush();\n    io::stderr().lock();\n}\n";

    #[test]
    fn printing_outside_ui_is_caught() {
        for path in [
            "crates/heddle/src/cli/commands/send.rs",
            "crates/core/src/x.rs",
            "sim/src/x.rs",
        ] {
            assert_eq!(lines_found(check, path, BAD), [2, 3, 4, 5, 6, 7], "{path}");
        }
    }

    #[test]
    fn its_rooms_and_writing_to_a_given_writer_pass() {
        for path in [
            "crates/heddle/src/cli/ui.rs",
            "crates/heddle/src/cli/ui/table.rs",
            "crates/core/tests/x.rs",
            "bench/src/main.rs",
        ] {
            assert_eq!(lines_found(check, path, BAD), [], "{path}");
        }
        let good = "fn f(out: &mut dyn Write) { writeln!(out, \"println!\"); }\n";
        assert_eq!(lines_found(check, "crates/core/src/x.rs", good), []);
    }
}
