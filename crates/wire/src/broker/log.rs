//! The log of a mesh on the wire: ops in the order in which they were accepted, read by cursor.

use heddle_core::envelope::{DestinationKind, EnvelopeKind, LOG_REF, Priority};
use heddle_core::ids::{ClientMessageId, HistoryId, Party};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::envelope::{DestinationFrame, Envelope};

/// One op of the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogItem {
    pub history_id: HistoryId,
    /// The place of the op before it; `0.0` for the first one. A reader that has not seen that one has
    /// missed something.
    pub previous: HistoryId,
    /// Who sent it, as the broker has proven it.
    pub from: Party,
    pub client_message_id: ClientMessageId,
    pub envelope: Box<RawValue>,
}

impl Envelope {
    /// The envelope of an op: its body is the op's canonical bytes.
    pub fn of_op(body: String) -> Self {
        Self {
            v: Self::VERSION,
            kind: EnvelopeKind::Op,
            destination: DestinationFrame {
                kind: DestinationKind::Log,
                reference: LOG_REF.to_owned(),
            },
            reply_to: String::new(),
            priority: Priority::Next,
            meta: None,
            body,
            mentions: Vec::new(),
        }
    }

    /// Whether kind and destination go together: ops go to the log, and nothing else does.
    pub fn is_op_to_log(&self) -> Result<bool, &'static str> {
        let to_log = self.destination.kind == DestinationKind::Log;
        match (self.kind, to_log) {
            (EnvelopeKind::Op, true) if self.destination.reference != LOG_REF => {
                Err("there is no such log")
            }
            (EnvelopeKind::Op, true) => Ok(true),
            (EnvelopeKind::Message, false) => Ok(false),
            (EnvelopeKind::Op, false) => Err("an op goes to the log, and nowhere else"),
            (EnvelopeKind::Message, true) => Err("only ops go to the log"),
        }
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::WallMs;
    use heddle_core::data::DataKey;
    use heddle_core::ids::OpId;
    use heddle_core::lamport::{PeerId, Stamp};
    use heddle_core::op::{DataOp, OpBody, Over, StateChange, seal};

    use super::*;

    /// The store writes the envelope of an op without knowing this crate.
    #[test]
    fn a_sealed_op_is_the_envelope_that_the_broker_reads() {
        let op = DataOp {
            stamp: Stamp {
                lamport: 7,
                peer: PeerId::new("01M/planner"),
                op: OpId::from_bytes([9; 16]),
            },
            incarnation: 2,
            at: WallMs(1_000),
            over: Over::Unsaid,
            body: OpBody::State(StateChange {
                key: DataKey::parse("k\u{e9}").unwrap(),
                write: None,
            }),
        };
        let sealed = seal(&op).unwrap();
        let envelope = Envelope::parse(&sealed.payload).unwrap();
        let body = String::from_utf8(op.to_bytes().unwrap()).unwrap();
        assert_eq!(envelope, Envelope::of_op(body));
        assert_eq!(
            envelope.wire_fingerprint().unwrap(),
            sealed.wire_fingerprint
        );
        assert_eq!(DataOp::parse(envelope.body.as_bytes()).unwrap(), op);
    }

    #[test]
    fn an_op_goes_to_the_log_and_nothing_else_does() {
        let op = Envelope::of_op("{}".to_owned());
        assert_eq!(op.is_op_to_log(), Ok(true));
        let bytes = serde_json::to_vec(&op).unwrap();
        assert_eq!(Envelope::parse(&bytes).unwrap(), op);
        for kind in DestinationKind::ALL {
            let mut other = op.clone();
            other.destination.kind = kind;
            assert_eq!(other.is_op_to_log().is_ok(), kind == DestinationKind::Log);
            other.kind = EnvelopeKind::Message;
            assert_eq!(other.is_op_to_log().is_err(), kind == DestinationKind::Log);
        }
        let mut elsewhere = op;
        elsewhere.destination.reference = "diary".to_owned();
        assert!(elsewhere.is_op_to_log().is_err());
    }
}
