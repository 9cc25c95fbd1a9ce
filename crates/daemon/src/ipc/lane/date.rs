//! The `Date` header (RFC 9110 §5.6.7), rendered once a second.

use heddle_core::clock::WallMs;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY_SECONDS: i64 = 86_400;

/// The last date that was rendered.
#[derive(Debug, Default)]
pub(super) struct DateCache {
    second: Option<i64>,
    text: String,
}

impl DateCache {
    pub(super) fn at(&mut self, now: WallMs) -> &str {
        let second = now.0.div_euclid(1000);
        if self.second != Some(second) {
            self.second = Some(second);
            self.text = imf_fixdate(second);
        }
        &self.text
    }
}

/// Seconds since 1970 as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn imf_fixdate(second: i64) -> String {
    let (days, time) = (
        second.div_euclid(DAY_SECONDS),
        second.rem_euclid(DAY_SECONDS),
    );
    let (year, month, day) = civil(days);
    let weekday = usize::try_from(days.rem_euclid(7)).unwrap_or(0);
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[weekday],
        MONTHS[month],
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// Year, month from 0 and day of a day counted from 1970-01-01, by whole eras of 400 years.
fn civil(days: i64) -> (i64, usize, i64) {
    let from_march = days + 719_468;
    let (era, day_of_era) = (
        from_march.div_euclid(146_097),
        from_march.rem_euclid(146_097),
    );
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = usize::try_from((month_from_march + 2) % 12).unwrap_or(0);
    let year = year_of_era + era * 400 + i64::from(month < 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_as_the_standard_writes_them() {
        for (second, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
        ] {
            assert_eq!(imf_fixdate(second), text);
        }
        let mut cache = DateCache::default();
        assert_eq!(cache.at(WallMs(999)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(cache.at(WallMs(1000)), "Thu, 01 Jan 1970 00:00:01 GMT");
    }
}
