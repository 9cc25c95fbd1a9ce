//! What a shared file holds, checked as far as it can be.

use super::{ContentHash, MediaType};
use crate::limits::{FILE_BYTES_MAX, FILE_INLINE_BYTES_MAX};

/// What a file holds: its bytes where they are few, else only who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    hash: ContentHash,
    size: u64,
    inline: Option<Vec<u8>>,
    mime: Option<MediaType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileContentError {
    #[error("content of {0} bytes must come with its bytes")]
    BytesMissing(u64),
    #[error("content of {0} bytes is too long to come along")]
    TooLongForRow(usize),
    #[error("the content is not what its hash and size say")]
    Mismatch,
    #[error("a file has at most {FILE_BYTES_MAX} bytes")]
    TooLarge,
}

impl FileContent {
    /// Bytes that stand in the row.
    pub fn inline(bytes: Vec<u8>, mime: Option<MediaType>) -> Result<Self, FileContentError> {
        if bytes.len() >= FILE_INLINE_BYTES_MAX {
            return Err(FileContentError::TooLongForRow(bytes.len()));
        }
        Ok(Self {
            hash: ContentHash::of(&bytes),
            size: bytes.len() as u64,
            inline: Some(bytes),
            mime,
        })
    }

    /// Bytes that are a blob of their own.
    pub fn blob(
        hash: ContentHash,
        size: u64,
        mime: Option<MediaType>,
    ) -> Result<Self, FileContentError> {
        if size < FILE_INLINE_BYTES_MAX as u64 {
            return Err(FileContentError::BytesMissing(size));
        }
        if size > FILE_BYTES_MAX {
            return Err(FileContentError::TooLarge);
        }
        Ok(Self {
            hash,
            size,
            inline: None,
            mime,
        })
    }

    /// As somebody else says it is: believed only as far as it can be checked.
    pub fn claimed(
        hash: ContentHash,
        size: u64,
        bytes: Option<Vec<u8>>,
        mime: Option<MediaType>,
    ) -> Result<Self, FileContentError> {
        let Some(bytes) = bytes else {
            return Self::blob(hash, size, mime);
        };
        let content = Self::inline(bytes, mime)?;
        if content.hash != hash || content.size != size {
            return Err(FileContentError::Mismatch);
        }
        Ok(content)
    }

    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn bytes(&self) -> Option<&[u8]> {
        self.inline.as_deref()
    }

    pub fn mime(&self) -> Option<&MediaType> {
        self.mime.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_claims_is_checked_and_its_size_alone_decides_where_it_stands() {
        let inline_max = FILE_INLINE_BYTES_MAX as u64;
        let hash = ContentHash::of(b"abc");
        let claimed = |hash, size, bytes: Option<&[u8]>| {
            FileContent::claimed(hash, size, bytes.map(<[u8]>::to_vec), None)
        };
        assert!(claimed(hash, 3, Some(b"abc")).is_ok());
        for (size, bytes) in [(3, &b"abd"[..]), (4, b"abc"), (3, b"")] {
            let refused = claimed(hash, size, Some(bytes));
            assert_eq!(refused, Err(FileContentError::Mismatch));
        }
        assert_eq!(
            claimed(hash, 3, None),
            Err(FileContentError::BytesMissing(3))
        );
        assert!(claimed(hash, inline_max, None).is_ok());
        let long = vec![0; FILE_INLINE_BYTES_MAX];
        let refused = claimed(ContentHash::of(&long), inline_max, Some(&long));
        assert_eq!(refused, Err(FileContentError::TooLongForRow(long.len())));
        let refused = claimed(hash, FILE_BYTES_MAX + 1, None);
        assert_eq!(refused, Err(FileContentError::TooLarge));
    }
}
