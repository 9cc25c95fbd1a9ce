//! Rule `environment`: variables are read in one file, so that a test knows all of them.

use super::one_place::{BENCH, OnePlace, SIM, Spelling, XTASK};
use super::source::Source;
use crate::finding::Finding;

const PLACE: OnePlace = OnePlace {
    rule: "environment",
    spellings: &[
        Spelling::Path(&["env", "var"]),
        Spelling::Path(&["env", "var_os"]),
        Spelling::Path(&["env", "vars"]),
        Spelling::Path(&["env", "vars_os"]),
    ],
    rooms: &[
        "crates/heddle/src/env.rs",
        // Where scripts/test has put its servers.
        "crates/broker/src/test_support/services.rs",
        BENCH,
        SIM,
        XTASK,
    ],
    build_scripts_may: true,
    test_modules_may: false,
    advice: "take the setting as an argument; only crates/heddle/src/env.rs reads the environment",
};

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    PLACE.check(source)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    const BAD: &str = "use std::env::{self, vars};\nfn f() {\n    std::env::var(\"HOME\");\n    \
        env::var_os(\"HOME\");\n}\n";

    #[test]
    fn a_variable_read_elsewhere_is_caught_even_in_a_test_module() {
        assert_eq!(
            lines_found(check, "crates/heddle/src/cli/x.rs", BAD),
            [1, 3, 4]
        );
        let in_module = format!("#[cfg(test)]\nmod tests {{\n{BAD}}}\n");
        assert_eq!(
            lines_found(check, "crates/heddle/src/cli/x.rs", &in_module),
            [3, 5, 6]
        );
    }

    #[test]
    fn its_rooms_and_compile_time_values_pass() {
        for path in [
            "crates/heddle/src/env.rs",
            "crates/a/tests/x.rs",
            "crates/a/build.rs",
        ] {
            assert_eq!(lines_found(check, path, BAD), [], "{path}");
        }
        let good =
            "fn f() { env!(\"CARGO_PKG_VERSION\"); std::env::args(); env::current_dir(); }\n";
        assert_eq!(lines_found(check, "crates/heddle/src/cli/x.rs", good), []);
    }
}
