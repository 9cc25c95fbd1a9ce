//! A batch on its way through the phases: each item is open, admitted or answered.

use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, MemberId, MeshId, Party};
use heddle_core::limits::{BATCH_BYTES_MAX, REQUEST_BYTES_MAX};
use heddle_core::names::{AgentName, MemberName, QueueName, TopicName};
use heddle_wire::broker::{Envelope, SendItem};

use super::reply::{Answer, Refusal};
use crate::principal::Principal;
use crate::storage::{Destination, LimiterNote, SendId};

/// An envelope is a request with its names resolved: up to 64 mentions and a recipient, each by
/// member id and agent. What a daemon accepted within its own limit must not die of that here.
pub(super) const ENVELOPE_BYTES_MAX: usize = REQUEST_BYTES_MAX + (16 << 10);
const _: () = assert!(ENVELOPE_BYTES_MAX <= BATCH_BYTES_MAX);

#[derive(Debug)]
pub struct Batch {
    mesh: MeshId,
    pub(super) sender_name: MemberName,
    /// The session that sends it, where a newer one replaces it.
    pub(super) session: Option<u64>,
    pub(super) slots: Vec<Slot>,
    /// The senders' ids, in order: a verdict says whose it is.
    pub(super) ids: Vec<ClientMessageId>,
}

/// Where one item stands.
#[derive(Debug)]
pub(super) enum Slot {
    /// Read, nothing decided.
    Open(Candidate),
    /// Past B1: may be committed.
    Admitted(Admitted),
    /// In the transaction, under this id.
    Committing {
        id: BrokerMessageId,
        is_op: bool,
        /// Whether it used one of the budget, and was not free as an id of this window.
        counted: bool,
    },
    Answered(Answer),
}

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) id: SendId,
    /// What the envelope says, or why it cannot be read.
    pub(super) read: Result<Read, Refusal>,
    /// Filled in by B0's read.
    pub(super) sender_registered: bool,
    /// The epoch that an op's sender takes the history to be in.
    pub(super) epoch: Option<u64>,
}

/// An envelope that could be read. One to a destination that this broker does not serve is readable
/// all the same: a known id is answered before anybody asks where it goes.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) destination: Result<Destination, Refusal>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) id: SendId,
    pub(super) destination: Destination,
    pub(super) content: Content,
    /// What the limiter said, once it was asked.
    pub(super) limiter: Option<LimiterNote>,
    pub(super) epoch: Option<u64>,
}

/// What identifies a message, and its bytes untouched.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) fingerprint: Fingerprint,
    pub(super) priority: Priority,
    pub(super) mentions: Vec<Party>,
    pub(super) envelope: Box<str>,
}

impl Batch {
    /// Reads every envelope. Refusals found here are not answers yet: B0 comes first.
    pub(super) fn read(sender: &Principal, items: Vec<SendItem>) -> Self {
        let open = |item: SendItem| {
            let party = Party {
                member: sender.member,
                agent: item.agent,
            };
            Slot::Open(Candidate {
                id: SendId::new(sender.mesh, party, item.client_message_id),
                read: read(item.envelope.into()),
                sender_registered: false,
                epoch: item.epoch,
            })
        };
        Self {
            mesh: sender.mesh,
            sender_name: sender.member_name.clone(),
            session: None,
            ids: items
                .iter()
                .map(|item| item.client_message_id.clone())
                .collect(),
            slots: items.into_iter().map(open).collect(),
        }
    }

    /// Sent by this session, and void once a newer one of the same member has begun.
    #[must_use]
    pub fn of_session(self, generation: Option<u64>) -> Self {
        Self {
            session: generation,
            ..self
        }
    }

    pub fn mesh(&self) -> MeshId {
        self.mesh
    }

    /// Settles or admits every open item.
    pub(super) fn decide_open(&mut self, mut decide: impl FnMut(Candidate) -> Slot) {
        self.replace(|slot| match slot {
            Slot::Open(candidate) => decide(candidate),
            other => other,
        });
    }

    /// Moves every admitted item on.
    pub(super) fn decide_admitted(&mut self, mut decide: impl FnMut(Admitted) -> Slot) {
        self.replace(|slot| match slot {
            Slot::Admitted(admitted) => decide(admitted),
            other => other,
        });
    }

    fn replace(&mut self, decide: impl FnMut(Slot) -> Slot) {
        self.slots = std::mem::take(&mut self.slots)
            .into_iter()
            .map(decide)
            .collect();
    }
}

fn read(envelope: Box<str>) -> Result<Read, Refusal> {
    if envelope.len() > ENVELOPE_BYTES_MAX {
        return Err(too_large("the envelope", envelope.len()));
    }
    let invalid =
        |detail: &dyn ToString| Refusal::new(ErrorCode::InvalidRequest, detail.to_string());
    let parsed = Envelope::parse(envelope.as_bytes()).map_err(|error| invalid(&error))?;
    if parsed.body.len() > REQUEST_BYTES_MAX {
        return Err(too_large("the body", parsed.body.len()));
    }
    Ok(Read {
        destination: read_destination(&parsed).map_err(|detail| invalid(&detail)),
        content: Content {
            fingerprint: parsed.wire_fingerprint().map_err(|error| invalid(&error))?,
            priority: parsed.priority,
            mentions: read_mentions(&parsed.mentions),
            envelope,
        },
    })
}

fn too_large(what: &str, bytes: usize) -> Refusal {
    Refusal::new(
        ErrorCode::PayloadTooLarge,
        format!("{what} has {bytes} bytes; {REQUEST_BYTES_MAX} are the most"),
    )
}

fn read_destination(envelope: &Envelope) -> Result<Destination, String> {
    if envelope.is_op_to_log()? {
        return Ok(Destination::Log);
    }
    let reference = &envelope.destination.reference;
    match envelope.destination.kind {
        DestinationKind::Queue => QueueName::parse(reference)
            .map(Destination::Queue)
            .map_err(|error| error.to_string()),
        DestinationKind::Topic => TopicName::parse(reference)
            .map(Destination::Topic)
            .map_err(|error| error.to_string()),
        DestinationKind::Dm => read_party(reference)
            .map(Destination::Dm)
            .ok_or_else(|| "a direct message goes to MEMBER_ID/agent".to_owned()),
        DestinationKind::Log => Ok(Destination::Log),
    }
}

/// One that cannot be anybody is passed over, like one that is nobody: it gets no row.
pub(crate) fn read_mentions(mentions: &[String]) -> Vec<Party> {
    let mut parties: Vec<Party> = mentions
        .iter()
        .filter_map(|text| read_party(text))
        .collect();
    // Two spellings of one name normalise to one party.
    parties.sort_unstable();
    parties.dedup();
    parties
}

/// `MEMBER_ID/agent`.
fn read_party(text: &str) -> Option<Party> {
    let (member, agent) = text.split_once('/')?;
    Some(Party {
        member: member.parse::<MemberId>().ok()?,
        agent: AgentName::parse(agent).ok()?,
    })
}
