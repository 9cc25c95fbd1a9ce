//! `--limit` of the verbs that list: a number that makes sense, or a sentence.

use heddle_core::limits::PAGE_ROWS_MAX;

/// For clap: `value_parser = parse_limit, allow_negative_numbers = true`.
pub fn parse_limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if (1..=PAGE_ROWS_MAX).contains(&limit) => Ok(limit),
        _ => Err(format!(
            "say how many rows, from 1 to {PAGE_ROWS_MAX}; the next page begins where this one ends"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_that_a_page_can_have_passes() {
        assert_eq!(parse_limit("1"), Ok(1));
        assert_eq!(parse_limit("500"), Ok(PAGE_ROWS_MAX));
        for bad in [
            "0",
            "-1",
            "501",
            "99999999999999999999999",
            "",
            "ten",
            "1.5",
        ] {
            assert!(parse_limit(bad).is_err(), "{bad}");
        }
    }
}
