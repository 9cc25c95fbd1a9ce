//! Why a connection ended, and what the peer is told about it.

use heddle_core::membership::Denied;
use heddle_core::negotiate::CloseCode as Policy;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed, or went away.
    PeerClosed,
    /// Nothing was heard for the ping deadline.
    PeerSilent,
    /// The peer did not take what was written to it; it resumes by its cursor (C16).
    SlowReader,
    /// This broker stops.
    Shutdown,
    /// The same member connected again.
    Replaced,
    /// The same member is connected already.
    RefusedForOlder,
    ProtocolMismatch,
    /// The hello names another mesh or member than the one that was proven.
    IdentityMismatch,
    UnknownMesh,
    /// The hello does not prove who it comes from, or comes from somebody who was shut out.
    Denied(Denied),
    /// An invitation was taken up; the new member connects anew.
    Claimed,
    /// An invitation was not taken up, and the peer was told why.
    ClaimRefused,
    HelloTimeout,
    /// Not a frame, or not one that may come here. Nobody of ours sends it.
    Malformed(&'static str),
    /// Not the protocol below the frames: unmasked, compressed, out of turn.
    NotWebSocket,
    /// Not text.
    Unsupported,
    TooLarge,
    /// The store does not answer; the peer comes back later.
    StorageUnavailable,
    /// Something of ours broke.
    Internal,
}

impl Ending {
    /// The close code and the reason behind it; `None` where nobody would hear it.
    fn close(self) -> Option<(u16, &'static str)> {
        Some(match self {
            Self::PeerClosed | Self::PeerSilent | Self::SlowReader => return None,
            Self::Shutdown => (1001, "shutting_down"),
            Self::NotWebSocket => (1002, "not_websocket"),
            Self::Unsupported => (1003, "not_text"),
            Self::Malformed(reason) => (1008, reason),
            Self::IdentityMismatch => (1008, "identity_mismatch"),
            Self::UnknownMesh => (1008, "unknown_mesh"),
            Self::Denied(Denied::Revoked) => policy(Policy::MemberRevoked),
            Self::Denied(Denied::Blocked) => policy(Policy::MemberBlocked),
            Self::Denied(Denied::SignatureRequired) => {
                (Policy::Unauthenticated.number(), "signature_required")
            }
            Self::Denied(Denied::SignatureInvalid) => {
                (Policy::Unauthenticated.number(), "signature_invalid")
            }
            Self::Claimed => (1000, "claimed"),
            Self::ClaimRefused => (1008, "claim_refused"),
            Self::HelloTimeout => (1008, "hello_timeout"),
            Self::TooLarge => (1009, "frame_too_large"),
            Self::StorageUnavailable => (1011, "storage_unavailable"),
            Self::Internal => (1011, "internal"),
            Self::ProtocolMismatch => (4001, "protocol_mismatch"),
            Self::Replaced => policy(Policy::ReplacedByNewer),
            Self::RefusedForOlder => policy(Policy::RefusedForOlder),
        })
    }

    pub(super) fn close_frame(self) -> Option<CloseFrame> {
        self.close().map(|(code, reason)| CloseFrame {
            code: CloseCode::from(code),
            // Short enough for the 123 bytes that a close frame holds.
            reason: format!(r#"{{"reason":"{reason}"}}"#).into(),
        })
    }
}

fn policy(code: Policy) -> (u16, &'static str) {
    (code.number(), code.reason())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_reason_is_json_and_fits_its_frame() {
        for ending in [
            Ending::Shutdown,
            Ending::Replaced,
            Ending::RefusedForOlder,
            Ending::ProtocolMismatch,
            Ending::IdentityMismatch,
            Ending::UnknownMesh,
            Ending::Denied(Denied::Revoked),
            Ending::Denied(Denied::Blocked),
            Ending::Denied(Denied::SignatureInvalid),
            Ending::Denied(Denied::SignatureRequired),
            Ending::Claimed,
            Ending::ClaimRefused,
            Ending::HelloTimeout,
            Ending::Malformed("too_many_acks"),
            Ending::NotWebSocket,
            Ending::Unsupported,
            Ending::TooLarge,
            Ending::StorageUnavailable,
            Ending::Internal,
        ] {
            let frame = ending.close_frame().unwrap();
            assert!(frame.reason.len() <= 123, "{ending:?}");
            assert!(serde_json::from_str::<serde_json::Value>(&frame.reason).is_ok());
            assert!(frame.code.is_allowed(), "{ending:?}");
        }
    }
}
