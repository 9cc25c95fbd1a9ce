//! Rows without numbers that stand between two places which cannot be read: keys in the middle are tried, and in the
//! middle of what is left, until something answers.

use std::cmp::Ordering;
use std::collections::VecDeque;

use rusqlite::types::Value;
use rusqlite::{Connection, Statement, params_from_iter};

use super::{Sink, Table, order_of};

/// Keys that are tried in one table. Where nothing stands between two damaged places all of them are tried in vain.
const PROBES_MAX: u32 = 20_000;
/// Bytes behind the common beginning of two keys that are halved.
const HALVED: usize = 16;

/// Between these two keys nothing was read yet.
type Gap = (Vec<Value>, Vec<Value>);

/// Takes what can be read strictly between two keys.
pub(super) fn between(
    old: &Connection,
    table: &Table,
    columns: &str,
    sink: &mut Sink<'_>,
    gap: Gap,
) -> rusqlite::Result<()> {
    let key: Vec<String> = table.key.iter().map(|name| format!("{name:?}")).collect();
    let places = vec!["?"; key.len()].join(", ");
    let sql = |sign: &str, direction: &str| {
        let order: Vec<String> = key
            .iter()
            .map(|name| format!("{name} {direction}"))
            .collect();
        format!(
            "SELECT {columns} FROM {:?} NOT INDEXED WHERE ({}) {sign} ({places}) ORDER BY {}",
            table.name,
            key.join(", "),
            order.join(", ")
        )
    };
    let (Ok(mut up), Ok(mut down)) = (
        old.prepare(&sql(">=", "ASC")),
        old.prepare(&sql("<", "DESC")),
    ) else {
        return Ok(());
    };
    let mut gaps = VecDeque::from([gap]);
    let mut probes = 0;
    while let Some((low, high)) = gaps.pop_front() {
        let Some(middle) = middle(&low, &high) else {
            continue;
        };
        probes += 1;
        if probes > PROBES_MAX {
            return Ok(());
        }
        let before = sink.kept.rows;
        let above = read(
            table,
            &mut up,
            (&middle, Ordering::Less),
            (&low, &high),
            sink,
        )?;
        let below = read(
            table,
            &mut down,
            (&middle, Ordering::Greater),
            (&low, &high),
            sink,
        )?;
        sink.kept.gaps += u64::from(sink.kept.rows > before);
        // Nearer to what was read first: there the next rows are likeliest.
        gaps.extend(above.map(|from| (from, high)));
        gaps.extend(below.map(|to| (low, to)));
    }
    Ok(())
}

/// Reads away from a key until the gap is over; where reading ended before that, how far it came. Rows that do not go on in
/// the order of their keys are damage: a page that leads back would give them for ever.
fn read(
    table: &Table,
    statement: &mut Statement<'_>,
    (from, way): (&[Value], Ordering),
    (low, high): (&[Value], &[Value]),
    sink: &mut Sink<'_>,
) -> rusqlite::Result<Option<Vec<Value>>> {
    let mut last = from.to_vec();
    let mut is_first = true;
    let mut rows = statement.query(params_from_iter(from))?;
    loop {
        sink.looks += 1;
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(None),
            Err(_) => return Ok(Some(last)),
        };
        let Ok(key) = table.key_of(row) else {
            return Ok(Some(last));
        };
        let order = order_of(&last, &key);
        // The key that was tried may stand there itself.
        if order != way && !(is_first && order.is_eq()) {
            return Ok(Some(last));
        }
        if order_of(low, &key).is_ge() || order_of(&key, high).is_ge() {
            // The other side of the gap: what is there was read before.
            return Ok(None);
        }
        is_first = false;
        sink.take(row, 0)?;
        last = key;
    }
}

/// A key between two others, about halfway; none where there is no room, or where only deeper cells would differ.
pub(super) fn middle(low: &[Value], high: &[Value]) -> Option<Vec<Value>> {
    let at = low.iter().zip(high).position(|(low, high)| low != high)?;
    let mut key = low[..at].to_vec();
    key.push(match (&low[at], &high[at]) {
        (Value::Integer(low), Value::Integer(high)) => {
            let sum = i128::from(*low) + i128::from(*high);
            // Upwards, so that the next of two neighbours is tried, too.
            Value::Integer(i64::try_from((sum + 1).div_euclid(2)).ok()?)
        }
        (Value::Blob(low), Value::Blob(high)) => Value::Blob(halfway(low, high, 0xff)?),
        (Value::Text(low), Value::Text(high)) => {
            let bytes = halfway(low.as_bytes(), high.as_bytes(), 0x7f)?;
            Value::Text(String::from_utf8(bytes).ok()?)
        }
        _ => return None,
    });
    let least = |value: &Value| match value {
        Value::Text(_) => Value::Text(String::new()),
        Value::Blob(_) => Value::Blob(Vec::new()),
        _ => Value::Integer(i64::MIN),
    };
    key.extend(high[at + 1..].iter().map(least));
    let is_between = order_of(low, &key).is_lt() && order_of(&key, high).is_lt();
    is_between.then_some(key)
}

/// Bytes between two others, as numbers with digits up to `digit_max` behind their common beginning.
fn halfway(low: &[u8], high: &[u8], digit_max: u8) -> Option<Vec<u8>> {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let base = u128::from(digit_max) + 1;
    // Fifteen digits: the sum of two such numbers has room.
    let digits = HALVED - 1;
    let number = |bytes: &[u8]| {
        (0..digits).fold(0_u128, |number, at| {
            let digit = bytes
                .get(common + at)
                .map_or(0, |byte| (*byte).min(digit_max));
            number * base + u128::from(digit)
        })
    };
    let (low_number, high_number) = (number(low), number(high));
    let mut middle = low_number + high_number.checked_sub(low_number)? / 2;
    let mut tail = vec![0; digits];
    for place in tail.iter_mut().rev() {
        *place = u8::try_from(middle % base).ok()?;
        middle /= base;
    }
    Some([&low[..common], &tail].concat())
}
