//! Lengths of time as people type them.

/// A number with d, h, m or s behind it.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time; use 30d, 12h, 90m or 45s");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "d" => 86_400,
        "h" => 3600,
        "m" => 60,
        "s" => 1,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        assert_eq!(parse_seconds("30d"), Ok(2_592_000));
        assert_eq!(parse_seconds("12h"), Ok(43_200));
        assert_eq!(parse_seconds("90m"), Ok(5400));
        assert_eq!(parse_seconds("0s"), Ok(0));
        for bad in [
            "",
            "30",
            "d",
            "-1d",
            "1w",
            "1.5h",
            "99999999999999999d",
            "3 d",
        ] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
