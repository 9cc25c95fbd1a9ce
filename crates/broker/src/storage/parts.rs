//! Parts of files on their way between brokers that share a store, and the promises about them.
//!
//! **Nothing is kept.** A part that was left is taken once, by the broker that asked, or forgotten soon after. One that is
//! lost, by a crash or with its hint, is asked for again by the home that wants it.
//!
//! A store that one process has to itself never sees one.

use std::future::Future;

use heddle_core::file::ContentHash;
use heddle_core::ids::{MemberId, MeshId};

use super::error::StorageError;

/// Who asks: the connection of a member, which no two brokers have, and the number of its question there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartAsk {
    pub mesh: MeshId,
    pub asker: MemberId,
    pub generation: u64,
    pub number: u64,
}

/// A stretch of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlace {
    pub sha256: ContentHash,
    pub offset: u64,
    pub length: u32,
}

/// How a question between brokers went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartOutcome {
    /// It lies ready to be taken.
    Left,
    /// The member that was asked has none.
    Absent,
    /// It is asked for too much already.
    Busy,
}

pub trait Parts: Send + Sync + 'static {
    /// Leaves a part for the broker that asked.
    fn leave_part(
        &self,
        ask: PartAsk,
        data: Vec<u8>,
    ) -> impl Future<Output = Result<(), StorageError>> + Send {
        drop(data);
        let why = format!("nobody else serves mesh {}", ask.mesh);
        std::future::ready(Err(StorageError::Unavailable(why)))
    }

    /// Takes what was left; the second one to ask finds nothing.
    fn take_part(
        &self,
        ask: PartAsk,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StorageError>> + Send {
        let _ = ask;
        std::future::ready(Ok(None))
    }
}
