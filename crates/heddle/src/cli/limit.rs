//! `--limit` of the verbs that list: a number that makes sense, or a sentence.

use heddle_core::limits::{PAGE_ROWS_MAX, VECTOR_HITS_MAX};

/// More than anybody reads.
const COUNT_MAX: usize = 1_000_000;

/// For clap: `value_parser = parse_limit, allow_negative_numbers = true`.
pub fn parse_limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if (1..=PAGE_ROWS_MAX).contains(&limit) => Ok(limit),
        _ => Err(format!(
            "say how many rows, from 1 to {PAGE_ROWS_MAX}; the next page begins where this one ends"
        )),
    }
}

/// The same for verbs whose answers have no pages, and fewer rows.
pub fn parse_hits(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if (1..=VECTOR_HITS_MAX).contains(&limit) => Ok(limit),
        _ => Err(format!("say how many to show, from 1 to {VECTOR_HITS_MAX}")),
    }
}

/// The same for what is read from a file of this machine.
pub fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=COUNT_MAX).contains(&count) => Ok(count),
        _ => Err(format!("say how many, from 1 to {COUNT_MAX}")),
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
