//! What can go wrong between a door and the daemon.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::problem::Problem;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no daemon answers at {}", socket.display())]
    NotRunning { socket: PathBuf },
    #[error("{} belongs to another user; refusing to talk to it", socket.display())]
    Foreign { socket: PathBuf },
    #[error("the daemon does not answer")]
    Silent,
    #[error("the connection to the daemon broke: {0}")]
    Broken(std::io::Error),
    #[error("the daemon answered something unexpected: {0}")]
    Protocol(String),
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silent,
            _ => Self::Broken(error),
        }
    }
}

impl ClientError {
    /// Whether the request may or may not have taken effect: the answer was lost on the way.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Silent)
    }
}
