//! Rule `file-lines`: one idea a file. Test code has its own, wider bound.

use super::source::Source;
use crate::finding::Finding;

pub(crate) const RULE: &str = "file-lines";
const PRODUCT_LINES_MAX: usize = 500;
const TEST_FILE_LINES_MAX: usize = 900;
const _: () = assert!(PRODUCT_LINES_MAX < TEST_FILE_LINES_MAX);

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let (counted, limit, what) = if source.is_all_test() {
        (
            source.line_count(),
            TEST_FILE_LINES_MAX,
            "lines in a test file",
        )
    } else {
        (
            source.product_line_count(),
            PRODUCT_LINES_MAX,
            "non-test lines",
        )
    };
    if counted <= limit {
        return Vec::new();
    }
    let advice = format!(
        "{counted} {what}, at most {limit}: split it by idea, or list it in xtask/exceptions.toml with a reason"
    );
    vec![Finding::new(&source.path, limit + 1, RULE, advice)]
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    const PRODUCT: &str = "crates/core/src/a.rs";
    const SUITE: &str = "crates/core/tests/a.rs";

    fn lines(count: usize) -> String {
        "fn f() {}\n".repeat(count)
    }

    fn tests(count: usize) -> String {
        format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(count - 3))
    }

    #[test]
    fn the_first_line_past_the_bound_is_caught() {
        assert_eq!(lines_found(check, PRODUCT, &lines(501)), [501]);
        assert_eq!(
            lines_found(check, PRODUCT, &(lines(501) + &tests(10))),
            [501]
        );
        assert_eq!(lines_found(check, SUITE, &lines(901)), [901]);
    }

    #[test]
    fn the_bound_itself_passes_and_tests_do_not_count() {
        assert_eq!(lines_found(check, PRODUCT, &lines(500)), []);
        assert_eq!(lines_found(check, PRODUCT, &(lines(500) + &tests(400))), []);
        assert_eq!(lines_found(check, SUITE, &lines(900)), []);
    }
}
