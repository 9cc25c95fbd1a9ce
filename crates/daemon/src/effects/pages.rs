//! Pages of `list` and `log`: where one ends, the next begins. A cursor is the place of what was shown last, so that whatever
//! is written meanwhile leaves nothing out and shows nothing twice.
//!
//! Beside the lines of the audit stand those of who came again, which are in memory only: both have their place in a
//! cursor of the log.

use std::fmt;
use std::str::FromStr;

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::hex;
use heddle_registrar::storage::{ListPlace, LoggedLine};
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        let is_hex = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(pair, 16).ok().filter(|_| is_hex)
    };
    digits.map(byte).collect()
}

/// A moment and a key, as both cursors have them.
fn place_text(at: WallMs, key: &[u8]) -> String {
    format!("{}.{}", at.0, hex(key))
}

fn place_of(text: &str) -> Option<(WallMs, Vec<u8>)> {
    let (at, key) = text.split_once('.')?;
    Some((WallMs(at.parse().ok()?), bytes_of(key)?))
}

pub(super) fn list_cursor(place: &ListPlace) -> String {
    place_text(place.last_at, &place.key)
}

fn not_ours(_: ()) -> Problem {
    from_wire::invalid("the cursor is not one that a page gave")
        .next("Leave it out for the newest; each page names the cursor of the next one.")
}

pub(super) fn list_place(cursor: Option<&str>) -> Result<Option<ListPlace>, Problem> {
    let place = |text| {
        let (last_at, key) = place_of(text).ok_or(()).map_err(not_ours)?;
        Ok(ListPlace { last_at, key })
    };
    cursor.map(place).transpose()
}

/// Where a page of the log ends: the last line of the audit that was shown, and the last of who came again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogPlace {
    pub(super) before: Option<i64>,
    again: Option<(WallMs, Vec<u8>)>,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of the audit was shown yet: everything is before it.
        write!(f, "{}", self.before.unwrap_or(i64::MAX))?;
        match &self.again {
            Some((at, key)) => write!(f, ".{}", place_text(*at, key)),
            None => Ok(()),
        }
    }
}

impl FromStr for LogPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (before, again) = match text.split_once('.') {
            Some((before, again)) => (before, Some(place_of(again).ok_or(())?)),
            None => (text, None),
        };
        let before = before.parse().map_err(|_| ())?;
        Ok(Self {
            before: Some(before),
            again,
        })
    }
}

impl LogPlace {
    pub(super) fn of(cursor: Option<&str>) -> Result<Self, Problem> {
        let place = cursor.map(|text| text.parse().map_err(not_ours));
        Ok(place.transpose()?.unwrap_or_default())
    }

    /// Whether this line of who came again is behind the place.
    fn is_behind(&self, line: &LoggedLine) -> bool {
        self.again.as_ref().is_none_or(|(at, key)| {
            let (own, of) = (line.row.at.0, at.0);
            own < of || (own == of && line.row.key.as_bytes() > key.as_slice())
        })
    }
}

/// The page behind a place: at most so many of both, newest first, and the place of the next one. Of the lines of the audit
/// there are one more than a page has where there is more; of who came again all are given.
pub(super) fn log_page(
    place: &LogPlace,
    noted: Vec<LoggedLine>,
    again: Vec<LoggedLine>,
    limit: usize,
) -> (Vec<LoggedLine>, Option<LogPlace>) {
    let mut again: Vec<LoggedLine> = again
        .into_iter()
        .filter(|line| place.is_behind(line))
        .collect();
    again.sort_by(|a, b| {
        let newer = b.row.at.0.cmp(&a.row.at.0);
        newer.then_with(|| a.row.key.cmp(&b.row.key))
    });
    let (mut noted, mut again) = (noted.into_iter().peekable(), again.into_iter().peekable());
    let (mut lines, mut next) = (Vec::new(), place.clone());
    while lines.len() < limit {
        let is_again = match (noted.peek(), again.peek()) {
            (None, None) => return (lines, None),
            (Some(line), Some(came)) => line.row.at <= came.row.at,
            (noted, _) => noted.is_none(),
        };
        if is_again {
            lines.extend(again.next().inspect(|line| {
                next.again = Some((line.row.at, line.row.key.clone().into_bytes()));
            }));
        } else {
            lines.extend(noted.next().inspect(|line| next.before = Some(line.seq)));
        }
    }
    let has_more = noted.peek().is_some() || again.peek().is_some();
    (lines, has_more.then_some(next))
}

#[cfg(test)]
mod tests {
    use heddle_registrar::rows::AuditRow;

    use super::*;

    fn line(seq: i64, at: i64, key: &str) -> LoggedLine {
        LoggedLine {
            seq,
            row: AuditRow {
                key: key.to_owned(),
                attempt_id: String::new(),
                event: String::new(),
                code: String::new(),
                detail: String::new(),
                by: String::new(),
                at: WallMs(at),
            },
        }
    }

    #[test]
    fn a_cursor_reads_back_and_nothing_else_is_one() {
        let place = ListPlace {
            last_at: WallMs(17),
            key: "k\u{e9}.1".into(),
        };
        let text = list_cursor(&place);
        assert_eq!(list_place(Some(&text)).unwrap(), Some(place));
        assert_eq!(list_place(None).unwrap(), None);
        for bad in ["", "17", "x.6b", "17.6", "17.+b", "17.zz", "17.é"] {
            assert!(list_place(Some(bad)).is_err(), "{bad}");
        }
        for good in ["17", "17.5.6b", "17.5."] {
            let place = LogPlace::of(Some(good)).unwrap();
            assert_eq!(place.to_string(), good);
        }
        for bad in ["", "x", "1.2", "1.x.6b", "1.2.6", "9223372036854775808"] {
            assert!(LogPlace::of(Some(bad)).is_err(), "{bad}");
        }
        assert_eq!(LogPlace::of(None).unwrap(), LogPlace::default());
    }

    /// Every mixture of both, in pages of every size: each line once, in one order.
    #[test]
    fn pages_of_every_size_show_each_line_once() {
        for mixture in 0..64_i64 {
            let noted = |before: Option<i64>, limit: usize| {
                let all = (1..=6).rev().map(|seq| line(seq, seq * 10, "n"));
                let behind = all.filter(move |line| before.is_none_or(|it| line.seq < it));
                behind.take(limit).collect::<Vec<_>>()
            };
            let came = |nth: i64| (0..=mixture >> nth & 1).map(move |two| (nth * 10 + 10, two));
            let again: Vec<LoggedLine> = (0..6)
                .filter(|nth| mixture >> nth & 1 == 1)
                .flat_map(came)
                .map(|(at, two)| line(0, at, &format!("a{two}")))
                .collect();
            let named =
                |line: &LoggedLine| format!("{} {} {}", line.row.at.0, line.row.key, line.seq);
            let whole = log_page(&LogPlace::default(), noted(None, 99), again.clone(), 99);
            assert_eq!(whole.1, None);
            let whole: Vec<String> = whole.0.iter().map(named).collect();
            assert_eq!(whole.len(), 6 + again.len());
            for limit in 1..8 {
                let (mut all, mut place) = (Vec::new(), Some(LogPlace::default()));
                while let Some(at) = place {
                    let (lines, next) =
                        log_page(&at, noted(at.before, limit + 1), again.clone(), limit);
                    assert!(lines.len() <= limit && !(lines.is_empty() && next.is_some()));
                    all.extend(lines.iter().map(named));
                    place = next.map(|next| LogPlace::of(Some(&next.to_string())).unwrap());
                }
                assert_eq!(all, whole, "{mixture} in pages of {limit}");
            }
        }
    }
}
