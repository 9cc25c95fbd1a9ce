//! The constants of the format on disk, chained: each bound is proven to fit into the next.
//!
//! `docs/FORMAT.md` says the same in prose; a test compares the two.

/// The version of the envelope, `"v"` of every record.
pub const ENVELOPE_VERSION: u8 = 2;
/// Digits of the seq in the names of segments and checkpoints: all of `u64` (C25).
pub const NAME_DIGITS: usize = 20;
pub const SEGMENT_PREFIX: &str = "seg-";
pub const SEGMENT_SUFFIX: &str = ".jsonl";
pub const CHECKPOINT_PREFIX: &str = "ckpt-";
pub const CHECKPOINT_SUFFIX: &str = ".json";

/// A payload above this goes into a blob and the record refers to it.
pub const INLINE_PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// A line, its newline not counted.
pub const LINE_BYTES_MAX: usize = 256 << 10;
/// A summary for people.
pub const SUMMARY_BYTES_MAX: usize = 4 << 10;
/// An agent, user, agent id or writer.
pub const WHO_BYTES_MAX: usize = 256;
/// The id of a request.
pub const REQUEST_ID_BYTES_MAX: usize = 256;
/// An item id; it is also a file name.
pub const ITEM_ID_BYTES_MAX: usize = 128;
/// The name of an item type; it is also a folder name.
pub const ITEM_TYPE_BYTES_MAX: usize = 64;
/// A payload in a blob.
pub const BLOB_BYTES_MAX: usize = 16 << 20;
/// No journal gets so far, and JSON numbers end here. What says more was written by a forger, and does not count.
pub const SEQ_MAX: u64 = 1 << 53;
/// Records of one batch.
pub const BATCH_RECORDS_MAX: usize = 4096;
/// Bytes of one batch: one buffer, one write.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// A segment that has reached this is sealed before the next batch.
pub const SEGMENT_ROLL_BYTES: u64 = 10 << 20;
/// No segment that we wrote is larger; one that is was not written by us and is refused.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// A segment that has reached this gets blank room ahead: newlines, which are lines of nothing.
pub const ROOM_FROM_BYTES: u64 = 64 << 10;
/// The most of it, and never more than the segment holds.
pub const ROOM_BYTES_MAX: u64 = 1 << 20;
/// What the tail check reads first; it doubles until the last complete batch is inside.
pub const TAIL_WINDOW_BYTES: u64 = 8 << 10;

/// `,"crc":"` + eight hex digits + `"}`: the last bytes of every line.
pub const CRC_OPEN: &[u8] = b",\"crc\":\"";
pub const CRC_DIGITS: usize = 8;
pub const CRC_SUFFIX_BYTES: usize = CRC_OPEN.len() + CRC_DIGITS + 2;

/// What an envelope holds beside payload, summary, names: keys, numbers, batch, crc.
const ENVELOPE_REST_BYTES: usize = 1 << 10;

const _: () = assert!(NAME_DIGITS == 20 && u64::MAX.ilog10() as usize + 1 == NAME_DIGITS);
// A byte of a string takes at most six when it is escaped; a payload is already JSON.
const _: () = assert!(
    INLINE_PAYLOAD_BYTES_MAX
        + 6 * (SUMMARY_BYTES_MAX
            + 4 * WHO_BYTES_MAX
            + REQUEST_ID_BYTES_MAX
            + ITEM_ID_BYTES_MAX
            + ITEM_TYPE_BYTES_MAX)
        + ENVELOPE_REST_BYTES
        < LINE_BYTES_MAX
);
const _: () = assert!(INLINE_PAYLOAD_BYTES_MAX < BLOB_BYTES_MAX);
const _: () = assert!(LINE_BYTES_MAX + 2 < BATCH_BYTES_MAX);
const _: () =
    assert!(SEGMENT_ROLL_BYTES + (BATCH_BYTES_MAX as u64) + ROOM_BYTES_MAX < SEGMENT_BYTES_MAX);
const _: () = assert!(TAIL_WINDOW_BYTES < SEGMENT_ROLL_BYTES);

/// `seg-00000000000000000001.jsonl`, named by the first seq that it holds, for ever.
pub fn segment_name(first_seq: u64) -> String {
    format!("{SEGMENT_PREFIX}{first_seq:020}{SEGMENT_SUFFIX}")
}

pub fn checkpoint_name(head_seq: u64) -> String {
    format!("{CHECKPOINT_PREFIX}{head_seq:020}{CHECKPOINT_SUFFIX}")
}

/// The seq in the name of a segment; anything else in the folder is none.
pub fn segment_seq(name: &str) -> Option<u64> {
    seq_in(name, SEGMENT_PREFIX, SEGMENT_SUFFIX)
}

pub fn checkpoint_seq(name: &str) -> Option<u64> {
    seq_in(name, CHECKPOINT_PREFIX, CHECKPOINT_SUFFIX)
}

fn seq_in(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let is_seq = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    is_seq.then(|| digits.parse().ok()).flatten()
}

/// An id that can be a file name on every file system, and no path.
pub fn is_item_id(id: &str) -> bool {
    let bytes = id.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=ITEM_ID_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(plain)
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1] != b'.'
}

/// The name of an item type: lower case, so that no file system merges two of them.
pub fn is_item_type(name: &str) -> bool {
    let bytes = name.as_bytes();
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
    (1..=ITEM_TYPE_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(plain)
        && bytes[0].is_ascii_lowercase()
}

/// A SHA-256 in lower-case hex, and so no path (T-62).
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c25_names_sort_as_numbers_over_all_of_u64() {
        let seqs = [1, 9, 10, 99_999_999, 100_000_000, u64::MAX];
        for pair in seqs.windows(2) {
            assert!(segment_name(pair[0]) < segment_name(pair[1]));
        }
        for seq in seqs {
            assert_eq!(segment_seq(&segment_name(seq)), Some(seq));
            assert_eq!(checkpoint_seq(&checkpoint_name(seq)), Some(seq));
        }
        for bad in [
            "seg-1.jsonl",
            "seg-00000001.jsonl",
            "seg-+0000000000000000001.jsonl",
            "seg-99999999999999999999.jsonl",
            "seg-00000000000000000001.jsonl.tmp",
            "ckpt-00000000000000000001.jsonl",
        ] {
            assert_eq!(segment_seq(bad), None, "{bad}");
        }
    }

    #[test]
    fn t_62_an_id_and_a_hash_are_never_a_path() {
        for bad in [
            "", ".", "..", "a/b", "../x", "a\\b", "-x", "x.", "a b", "é", "\0",
        ] {
            assert!(!is_item_id(bad), "{bad:?}");
        }
        assert!(is_item_id("pln_2290bc70") && is_item_id("a") && is_item_id("src-lib.rs"));
        assert!(is_item_type("agent_run") && !is_item_type("Plan") && !is_item_type("_x"));
        assert!(is_sha256(&"a".repeat(64)) && !is_sha256(&"A".repeat(64)) && !is_sha256("../x"));
    }

    #[test]
    fn the_document_says_the_same() {
        let text = include_str!("../../../docs/FORMAT.md");
        for (name, value) in [
            ("envelope version", u64::from(ENVELOPE_VERSION)),
            ("digits in a name", NAME_DIGITS as u64),
            ("inline payload", INLINE_PAYLOAD_BYTES_MAX as u64),
            ("line", LINE_BYTES_MAX as u64),
            ("summary", SUMMARY_BYTES_MAX as u64),
            ("id of a request", REQUEST_ID_BYTES_MAX as u64),
            ("blob", BLOB_BYTES_MAX as u64),
            ("seq", SEQ_MAX),
            ("records of a batch", BATCH_RECORDS_MAX as u64),
            ("batch", BATCH_BYTES_MAX as u64),
            ("segment is rolled at", SEGMENT_ROLL_BYTES),
            ("segment is refused above", SEGMENT_BYTES_MAX),
            ("room ahead, from a segment of", ROOM_FROM_BYTES),
            ("room ahead, at most", ROOM_BYTES_MAX),
        ] {
            let row = format!("| {name} | {value} |");
            assert!(text.contains(&row), "FORMAT.md lacks `{row}`");
        }
    }
}
