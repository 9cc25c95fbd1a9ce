//! The file in which a runner keeps how its command ended, until somebody has taken it: the call as the runner would have
//! made it, behind a digest. What was changed since is nobody's word.
//!
//! The digest is bound to the name of the file, which is that of the mesh and the key: the end of another effect is none of
//! this one. This is for disks, and not for people who change the digest as well.

use std::io::Read as _;
use std::path::Path;

use heddle_core::fingerprint::hex;
use heddle_wire::broker::EffectCall;
use heddle_wire::ipc::EffectEndBody;
use sha2::{Digest as _, Sha256};

use crate::home::open_private;

/// The name of an end, beside `NAME.lock`.
pub const END: &str = "end";
/// The first word of the file, and what its digest begins with.
const DOMAIN: &str = "heddle.effects.end.v1";
/// Two streams of 64 KB, each of whose bytes JSON may write as six.
const END_BYTES_MAX: u64 = 2 << 20;

/// Why an end is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bad {
    /// Half a file, another file, or none that we may read.
    Unreadable,
    /// It has no digest, or another one than what it says.
    Changed,
}

impl Bad {
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Unreadable => "cannot be read",
            Self::Changed => "is not as it was written (its digest says so)",
        }
    }
}

fn digest(path: &Path, call: &str) -> String {
    let name = path.file_stem().unwrap_or_default().as_encoded_bytes();
    let mut digest = Sha256::new();
    for part in [DOMAIN.as_bytes(), name, call.as_bytes()] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    hex(&digest.finalize())
}

/// What is written into the file of this name.
pub fn end_text(path: &Path, call: &EffectCall) -> String {
    let call = serde_json::to_string(call).unwrap_or_default();
    format!("{DOMAIN} {}\n{call}", digest(path, &call))
}

pub(super) fn read(path: &Path) -> Result<EffectCall, Bad> {
    let mut bytes = Vec::new();
    let file = open_private(path).map_err(|_| Bad::Unreadable)?;
    let read = file.take(END_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|_| Bad::Unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| Bad::Changed)?;
    let (head, call) = text.split_once('\n').ok_or(Bad::Unreadable)?;
    let said = head
        .strip_prefix(DOMAIN)
        .and_then(|rest| rest.strip_prefix(' '));
    if said != Some(digest(path, call).as_str()) {
        return Err(Bad::Changed);
    }
    match serde_json::from_str(call) {
        Ok(call @ (EffectCall::Finish(_) | EffectCall::Compensated(_))) => Ok(call),
        _ => Err(Bad::Unreadable),
    }
}

pub(super) fn body(call: &EffectCall) -> Option<&EffectEndBody> {
    match call {
        EffectCall::Finish(body) | EffectCall::Compensated(body) => Some(body),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::home::write_private;

    fn end(exit_code: i32) -> EffectCall {
        EffectCall::Finish(EffectEndBody {
            key: "k".to_owned(),
            attempt_id: "a".to_owned(),
            exit_code: Some(exit_code),
            stdout: "payed 4711\n".to_owned(),
            ..EffectEndBody::default()
        })
    }

    #[test]
    fn an_end_reads_back_as_it_was_written_and_no_other_byte_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0123.end");
        let text = end_text(&path, &end(7));
        write_private(&path, &text).unwrap();
        assert_eq!(read(&path), Ok(end(7)));
        // Each byte, each of them one bit further; and every shorter file.
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(read(&path).is_err(), "{at}: {:?}", bytes[at] as char);
            std::fs::write(&path, &text.as_bytes()[..at]).unwrap();
            assert!(read(&path).is_err(), "cut at {at}");
        }
        let changed = text.replace("\"exit_code\":7", "\"exit_code\":0");
        assert_ne!(changed, text);
        std::fs::write(&path, changed).unwrap();
        assert_eq!(read(&path), Err(Bad::Changed));
        // One that lost its digest, as those of earlier versions had none, is nobody's word.
        let bare = serde_json::to_string(&end(7)).unwrap();
        for bare in [
            bare.clone(),
            format!("\n{bare}"),
            format!("{DOMAIN} \n{bare}"),
        ] {
            std::fs::write(&path, &bare).unwrap();
            assert!(read(&path).is_err(), "{bare}");
        }
        // The end of another effect, whole.
        std::fs::write(&path, end_text(&folder.path().join("0124.end"), &end(7))).unwrap();
        assert_eq!(read(&path), Err(Bad::Changed));
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        let status = EffectCall::Status {
            key: "k".to_owned(),
        };
        std::fs::write(&path, end_text(&path, &status)).unwrap();
        assert_eq!(read(&path), Err(Bad::Unreadable), "no end at all");
    }
}
