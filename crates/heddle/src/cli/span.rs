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

/// The same for what lasts seconds or minutes, where a bare number can mean seconds only.
pub fn parse_short(text: &str) -> Result<u64, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wrong = || format!("{text:?} is no time; use 45 or 45s for seconds, 90m, 12h or 30d");
    if is_bare {
        return text.parse().map_err(|_| wrong());
    }
    parse_seconds(text).map_err(|_| wrong())
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

    #[test]
    fn a_short_time_may_be_a_bare_number_of_seconds() {
        assert_eq!(parse_short("2"), Ok(2));
        assert_eq!(parse_short("2s"), Ok(2));
        assert_eq!(parse_short("2m"), Ok(120));
        for bad in ["", "-2", "+2", "2.5", "2 s", "s", "99999999999999999999"] {
            let told = parse_short(bad).unwrap_err();
            assert!(told.contains("45 or 45s for seconds"), "{told}");
        }
    }
}
