//! A checksum at the end of a small JSON file, as every record has one: a flipped bit in a cache is damage, never news.

use crate::error::JournalError;
use crate::format::CRC_OPEN;
use crate::record::{LineFault, crc_at_end, crc_of};

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    Sound,
    /// None is there: an older build wrote it, or the stamp itself was hit.
    Absent,
    Wrong,
}

/// The document as its file has it: one line, the checksum as its last field.
pub(crate) fn stamped<T: serde::Serialize>(document: &T) -> Result<Vec<u8>, JournalError> {
    let mut bytes = serde_json::to_vec(document).map_err(JournalError::refused)?;
    // The closing brace comes behind the checksum.
    bytes.pop();
    let crc = crc_of(&bytes);
    bytes.extend_from_slice(CRC_OPEN);
    bytes.extend_from_slice(format!("{crc:08x}\"}}\n").as_bytes());
    Ok(bytes)
}

pub(crate) fn look(bytes: &[u8]) -> Stamp {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    match crc_at_end(line) {
        Ok(_) => Stamp::Sound,
        Err(LineFault::CrcMismatch) => Stamp::Wrong,
        Err(_) => Stamp::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = stamped(&serde_json::json!({"v": 3, "next_seq": 12})).unwrap();
        assert_eq!(look(&bytes), Stamp::Sound);
        let read = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes);
        assert_eq!(read(&bytes).unwrap()["next_seq"], 12);
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            // Behind the last newline there is nothing that the checksum would cover.
            let is_seen = look(&other) != Stamp::Sound || read(&other).is_err();
            assert!(is_seen, "bit {bit}");
        }
        assert_eq!(look(b"{\"v\":1}\n"), Stamp::Absent);
        assert_eq!(look(b""), Stamp::Absent);
    }
}
