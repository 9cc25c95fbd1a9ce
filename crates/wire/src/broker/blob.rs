//! Bytes of large files on their way from one home to another: which ones, and the bytes themselves.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use heddle_core::file::ContentHash;
use heddle_core::limits::BLOB_PART_BYTES_MAX;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A stretch of a blob. It never asks for more than a frame holds, whoever wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPlace {
    #[serde(with = "hex_hash")]
    pub sha256: ContentHash,
    pub offset: u64,
    /// At most so many bytes.
    #[serde(deserialize_with = "length")]
    pub length: u32,
}

fn length<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let length = u32::deserialize(from)?;
    if length == 0 || length > BLOB_PART_BYTES_MAX {
        return Err(D::Error::custom("a part has too many bytes, or none"));
    }
    Ok(length)
}

mod hex_hash {
    use super::{ContentHash, Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(hash: &ContentHash, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(hash)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ContentHash, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

pub(super) mod op_id {
    use heddle_core::ids::OpId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(id: &OpId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<OpId, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Some bytes, base64 on the wire; never more than a part holds.
#[derive(Clone, PartialEq, Eq)]
pub struct PartBytes(pub Vec<u8>);

impl fmt::Debug for PartBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartBytes({} bytes)", self.0.len())
    }
}

impl Serialize for PartBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PartBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        let most = BLOB_PART_BYTES_MAX as usize;
        // Before it is decoded: four signs for three bytes, and the last ones filled up.
        if text.len() > most.div_ceil(3) * 4 {
            return Err(D::Error::custom("a part has too many bytes"));
        }
        let bytes = STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        if bytes.len() > most {
            return Err(D::Error::custom("a part has too many bytes"));
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClientFrame, ServerFrame};
    use super::*;

    fn place() -> BlobPlace {
        BlobPlace {
            sha256: ContentHash::of(b"x"),
            offset: 7,
            length: BLOB_PART_BYTES_MAX,
        }
    }

    #[test]
    fn what_is_asked_and_answered_survives_the_way_there_and_back() {
        let text = format!(
            r#"{{"type":"request","request":3,"body":{{"what":"blob_read","member":"01HZX000000000000000000001","sha256":"{}","offset":7,"length":{BLOB_PART_BYTES_MAX}}}}}"#,
            place().sha256
        );
        let again = ClientFrame::parse(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
        let asked = ServerFrame::BlobAsked {
            ask: 9,
            part: place(),
        };
        let text = serde_json::to_string(&asked).unwrap();
        let Ok(ServerFrame::BlobAsked { ask: 9, part }) = ServerFrame::parse(&text) else {
            panic!("{text}");
        };
        assert_eq!(part, place());
        for data in [None, Some(PartBytes(vec![0, 255, 7]))] {
            let part = ClientFrame::BlobPart { ask: 9, data };
            let text = serde_json::to_string(&part).unwrap();
            let again = ClientFrame::parse(&text).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), text);
        }
        let reply = format!(
            r#"{{"type":"reply","request":7,"result":"blob_part","data":"{}"}}"#,
            "AAEC"
        );
        assert!(ServerFrame::parse(&reply).is_ok());
    }

    #[test]
    fn more_than_a_part_holds_is_no_frame() {
        let most = BLOB_PART_BYTES_MAX as usize;
        for (bytes, is_ok) in [(most, true), (most + 1, false), (most * 2, false)] {
            let data = STANDARD.encode(vec![1; bytes]);
            let text = format!(r#"{{"type":"blob_part","ask":1,"data":"{data}"}}"#);
            assert_eq!(ClientFrame::parse(&text).is_ok(), is_ok, "{bytes}");
        }
        assert!(ClientFrame::parse(r#"{"type":"blob_part","ask":1,"data":"no base64"}"#).is_err());
        let hash = ContentHash::of(b"x");
        for (hash, length, is_ok) in [
            (hash.to_string(), 1, true),
            (hash.to_string(), BLOB_PART_BYTES_MAX + 1, false),
            (hash.to_string(), 0, false),
            (hash.to_string().to_uppercase(), 1, false),
            ("../../etc/passwd".to_owned(), 1, false),
        ] {
            let text = format!(
                r#"{{"type":"blob_asked","ask":1,"sha256":"{hash}","offset":0,"length":{length}}}"#
            );
            assert_eq!(ServerFrame::parse(&text).is_ok(), is_ok, "{text}");
        }
    }
}
