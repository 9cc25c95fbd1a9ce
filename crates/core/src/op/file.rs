//! Ops on shared files: `file.share`, `file.delete`. The stamp's peer is the owner.
//!
//! Content that fits a row travels in the op, as base64; of a larger one only its hash and size do, and
//! each home fetches the bytes by themselves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{OpError, fields, malformed, unknown};
use crate::file::{ContentHash, FileContent, FilePath, MediaType};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: FilePath,
    /// `None` deletes.
    pub write: Option<FileContent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    path: String,
    sha256: String,
    size: u64,
    #[serde(default)]
    mime: Option<String>,
    #[serde(default)]
    content: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    path: String,
}

impl FileChange {
    pub(super) fn name(&self) -> &'static str {
        match self.write {
            Some(_) => "file.share",
            None => "file.delete",
        }
    }

    pub(super) fn fields(&self) -> Value {
        let mut fields = json!({"path": self.path.as_str()});
        if let Some(content) = &self.write {
            fields["sha256"] = json!(content.hash().to_string());
            fields["size"] = json!(content.size());
            if let Some(mime) = content.mime() {
                fields["mime"] = json!(mime.as_str());
            }
            if let Some(bytes) = content.bytes() {
                fields["content"] = json!(STANDARD.encode(bytes));
            }
        }
        fields
    }

    pub(super) fn parse(verb: &str, given: Value) -> Result<Self, OpError> {
        match verb {
            "share" => {
                let given: Share = fields(given)?;
                let path = path(&given.path)?;
                let write = Some(content(given)?);
                Ok(Self { path, write })
            }
            "delete" => {
                let given: Delete = fields(given)?;
                let path = path(&given.path)?;
                Ok(Self { path, write: None })
            }
            _ => Err(unknown(&format!("file.{verb}"))),
        }
    }
}

fn path(text: &str) -> Result<FilePath, OpError> {
    FilePath::kept(text).map_err(|error| malformed(error.to_string()))
}

fn content(given: Share) -> Result<FileContent, OpError> {
    let hash: ContentHash = given
        .sha256
        .parse()
        .map_err(|_| malformed("sha256 is not a hash"))?;
    let mime = match given.mime {
        None => None,
        Some(text) => match MediaType::parse(&text) {
            Ok(mime) if mime.as_str() == text => Some(mime),
            _ => return Err(malformed("mime is not a media type")),
        },
    };
    let bytes = given.content.map(|text| STANDARD.decode(text)).transpose();
    let bytes = bytes.map_err(|_| malformed("content is not base64"))?;
    FileContent::claimed(hash, given.size, bytes, mime)
        .map_err(|error| malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::WallMs;
    use crate::ids::OpId;
    use crate::lamport::{PeerId, Stamp};
    use crate::limits::FILE_INLINE_BYTES_MAX;
    use crate::op::{DataOp, OpBody, Over};

    fn op(write: Option<FileContent>) -> DataOp {
        let path = FilePath::parse("docs/plän.md").unwrap();
        DataOp {
            stamp: Stamp {
                lamport: 7,
                peer: PeerId::new("01M/planner"),
                op: OpId(Uuid::from_u128(9)),
            },
            incarnation: 1,
            at: WallMs(1_000),
            over: Over::Unsaid,
            body: OpBody::File(FileChange { path, write }),
        }
    }

    #[test]
    fn every_op_comes_back_from_its_bytes() {
        let mime = || MediaType::parse("text/plain").ok();
        let large = FILE_INLINE_BYTES_MAX as u64;
        for write in [
            None,
            FileContent::inline(Vec::new(), None).ok(),
            FileContent::inline(vec![0xff; FILE_INLINE_BYTES_MAX - 1], mime()).ok(),
            FileContent::blob(ContentHash::of(b"x"), large, mime()).ok(),
        ] {
            let op = op(write);
            let bytes = op.to_bytes().unwrap();
            assert_eq!(DataOp::parse(&bytes).unwrap(), op);
        }
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let small = op(FileContent::inline(b"abc".to_vec(), MediaType::parse("a/b").ok()).ok());
        let good = String::from_utf8(small.to_bytes().unwrap()).unwrap();
        for (from, to) in [
            ("docs/plän.md", "../plan.md"),
            ("docs/plän.md", "/etc/passwd"),
            ("docs/plän.md", "docs/pla\\u0308n.md"),
            (r#""size":3"#, r#""size":4"#),
            (r#""size":3"#, r#""size":-3"#),
            (r#""size":3"#, r#""size":3,"extra":1"#),
            (r#""content":"YWJj","#, ""),
            ("YWJj", "YWJk"),
            ("YWJj", "YWJj\\n"),
            ("YWJj", "YWJj===="),
            (r#""mime":"a/b""#, r#""mime":"A/b""#),
            (r#""mime":"a/b""#, r#""mime":"nonsense""#),
            (r#""sha256":"b"#, r#""sha256":"B"#),
            (r#""sha256":"b"#, r#""sha256":"a"#),
            (r#""sha256":"b"#, r#""sha256":"../b"#),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            assert!(DataOp::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
