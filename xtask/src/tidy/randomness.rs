//! Rule `randomness`: fresh ids and random bytes come from a source that a test can replace.

use super::one_place::{BENCH, OnePlace, SIM, SYSTEM, Spelling};
use super::source::Source;
use crate::finding::Finding;

const PLACE: OnePlace = OnePlace {
    rule: "randomness",
    spellings: &[
        Spelling::Root("getrandom"),
        Spelling::Root("rand"),
        Spelling::EmptyCall(&["Ulid", "new"]),
        Spelling::Path(&["Ulid", "generate"]),
        Spelling::Path(&["Ulid", "from_datetime"]),
        Spelling::Path(&["Uuid", "now_v7"]),
        Spelling::Path(&["Uuid", "new_v4"]),
    ],
    rooms: &[SYSTEM, BENCH, SIM],
    build_scripts_may: false,
    test_modules_may: true,
    advice: "take the random source as an argument; only crates/heddle/src/system/ holds the real one",
};

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    PLACE.check(source)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    const BAD: &str = "use rand::Rng;\nfn f() {\n    getrandom::fill(&mut b);\n    Ulid::new();\n    \
        Ulid::generate();\n    Uuid::now_v7();\n    uuid::Uuid::new_v4();\n}\n";

    #[test]
    fn randomness_in_product_code_is_caught() {
        let lines = lines_found(check, "crates/store/src/x.rs", BAD);
        assert_eq!(lines, [1, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn its_rooms_and_ids_from_given_bits_pass() {
        for path in [
            "crates/heddle/src/system/random.rs",
            "sim/src/x.rs",
            "crates/a/tests/x.rs",
        ] {
            assert_eq!(lines_found(check, path, BAD), [], "{path}");
        }
        let good = "fn f(bits: u128) { Ulid::from(bits); Ulid::from_parts(1, bits); Uuid::from_u128(bits); }\n";
        assert_eq!(lines_found(check, "crates/store/src/x.rs", good), []);
    }
}
