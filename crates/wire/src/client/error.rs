//! What can go wrong between a door and the daemon.

use std::path::PathBuf;

use crate::problem::Problem;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no daemon answers at {}", socket.display())]
    NotRunning { socket: PathBuf },
    #[error("{} belongs to another user; refusing to talk to it", socket.display())]
    Foreign { socket: PathBuf },
    #[error("the connection to the daemon broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("the daemon answered something unexpected: {0}")]
    Protocol(String),
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
}

impl ClientError {
    /// Whether the request may or may not have taken effect: the answer was lost on the way.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}
