//! Rule `clock`: time enters through `core::clock`; the real one is read in a single room.

use super::one_place::{BENCH, OnePlace, SIM, SYSTEM, Spelling, XTASK};
use super::source::Source;
use crate::finding::Finding;

const PLACE: OnePlace = OnePlace {
    rule: "clock",
    spellings: &[
        Spelling::Path(&["SystemTime", "now"]),
        Spelling::Path(&["Instant", "now"]),
        Spelling::Path(&["OffsetDateTime", "now_utc"]),
        Spelling::Path(&["OffsetDateTime", "now_local"]),
    ],
    rooms: &[SYSTEM, BENCH, SIM, XTASK],
    build_scripts_may: false,
    test_modules_may: true,
    advice: "take a clock as an argument; only crates/heddle/src/system/ reads the real one",
};

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    PLACE.check(source)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    const BAD: &str = "fn f() {\n    let a = std::time::SystemTime::now();\n    let b = Instant::now;\n    \
        let c = OffsetDateTime::now_utc();\n}\n";

    #[test]
    fn a_clock_in_product_code_is_caught() {
        assert_eq!(lines_found(check, "crates/daemon/src/x.rs", BAD), [2, 3, 4]);
    }

    #[test]
    fn its_rooms_and_a_handed_in_clock_pass() {
        for path in [
            "crates/heddle/src/system/clock.rs",
            "crates/daemon/tests/x.rs",
            "bench/src/x.rs",
            "sim/src/x.rs",
            "xtask/src/x.rs",
        ] {
            assert_eq!(lines_found(check, path, BAD), [], "{path}");
        }
        let good = "fn f(clock: &dyn Clock) -> Instant { clock.now() }\n";
        assert_eq!(lines_found(check, "crates/daemon/src/x.rs", good), []);
    }
}
