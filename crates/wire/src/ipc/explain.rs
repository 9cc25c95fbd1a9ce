//! `GET /v1/explain/{id}`: the whole story of an id across both layers, and its receipts.

use heddle_core::error_code::ErrorCode;
use serde::{Deserialize, Serialize};

use super::outbox::{AttemptView, OutboxRow};
use super::story::DataStoryView;

/// How far an effect has come. Each level implies the ones before it (DESIGN §13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Synced in this home's outbox.
    Local,
    /// In the broker's accept transaction.
    Committed,
    /// In the recipient's inbox; for a queue, with a consumer.
    Delivered,
    /// Put before the agent.
    Shown,
    /// Acknowledged by the agent.
    Acked,
}

impl Level {
    pub const ALL: [Self; 5] = [
        Self::Local,
        Self::Committed,
        Self::Delivered,
        Self::Shown,
        Self::Acked,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Committed => "committed",
            Self::Delivered => "delivered",
            Self::Shown => "shown",
            Self::Acked => "acked",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "what does not hold is left out of the answer, each by its own name"
)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainView {
    pub id: String,
    pub kind: String,
    pub mesh: String,
    /// In order of level, then of recipient.
    pub receipts: Vec<ReceiptView>,
    pub outbox: OutboxRow,
    /// Null while the broker is not known to hold the id, and where it has lost it.
    pub broker: Option<BrokerView>,
    /// Oldest first; of many the first five and the last twenty.
    pub attempts: Vec<AttemptView>,
    /// What the limiter said: when the broker let the message in, or that it does not yet; null where nobody
    /// noted it.
    pub limiter: Option<LimiterView>,
    pub deliveries: Vec<DeliveryView>,
    /// Recipients beyond the ones listed.
    #[serde(default)]
    pub deliveries_left_off: u64,
    /// True where the broker has no list: the deliveries are those of this home, and there may be others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deliveries_partial: bool,
    /// Whom it mentions, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<MentionView>,
    /// The rows that a requeue has linked, oldest first, this one included.
    pub chain: Vec<OutboxRow>,
    /// True where the broker could not be asked: what stands here is what this home knows.
    pub stale: bool,
    /// Why it could not, in words about the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_why: Option<String>,
    /// Where the broker had it and has lost it, because an older file of it was put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostView>,
    /// True where the broker had it and has forgotten the id, because its time is over: what it knew of recipients
    /// went with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
    /// Of an op: what it is about, and what became of it in the data of this home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<DataStoryView>>,
    /// True where the broker's body of it is not the one that was accepted, or the recipient's is not: it is held back, and
    /// whoever does not have it yet never gets it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// True where the broker's body of it is gone, though the broker has pruned none: whoever does not have it yet never
    /// gets it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// With `wait=LEVEL`: whether it was reached in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
}

/// A message that the broker had committed and has lost since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostView {
    /// `waiting`, `held`, `gone`, `refused`, `sent` or `given_up`.
    pub state: String,
    /// True while the broker does not have it.
    pub open: bool,
    /// The place that the broker has lost.
    pub history_id: String,
    pub reason: String,
    pub at: String,
}

impl LostView {
    /// Whether the broker does not have it, as far as this home knows: it waits, or a person let it be.
    pub fn is_away(&self) -> bool {
        self.open || self.is_dropped()
    }

    /// Whether a person has let it be.
    pub fn is_dropped(&self) -> bool {
        self.state == "given_up"
    }

    /// Whether nothing happens to it before a person says what.
    pub fn is_stuck(&self) -> bool {
        matches!(self.state.as_str(), "held" | "gone" | "given_up")
    }

    /// What became of it, in words that follow its name.
    pub fn says(&self) -> String {
        match self.state.as_str() {
            "waiting" => "it is being sent again under its id".to_owned(),
            "sent" if self.reason.is_empty() => {
                format!("it was sent again under its id at {}", self.at)
            }
            "refused" => format!("sent again, and refused: {}", self.reason),
            "given_up" => format!("it was dropped by the operator at {}", self.at),
            "held" => format!("it is held: {}", self.reason),
            _ => self.reason.clone(),
        }
    }

    /// What a person can do about it.
    pub fn next(&self, id: &str) -> Option<String> {
        match self.state.as_str() {
            "held" | "refused" => Some(format!(
                "`heddle doctor --retry {id}` sends it again, `heddle doctor --drop {id}` gives it up"
            )),
            "gone" => Some(format!(
                "Send it anew if anybody misses it, then `heddle doctor --drop {id}`"
            )),
            "waiting" => Some(format!(
                "Nothing: it goes on by itself; `heddle explain {id}` shows how far it came"
            )),
            "given_up" => Some("Send it anew under another id, if anybody misses it".to_owned()),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptView {
    pub level: String,
    pub at: String,
    /// Null for `local` and `committed`, which concern no recipient.
    pub recipient: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerView {
    pub broker_message_id: String,
    pub history_id: String,
    pub wire_fingerprint_prefix: Option<String>,
    /// When the broker got it, by its own clock.
    pub first_seen_at: Option<String>,
    /// From when on it is committed for sure, as far as this home knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<String>,
    /// When the broker may forget the id; null: never, or not known.
    pub expires_at: Option<String>,
    /// False once the body was pruned there.
    pub history_available: Option<bool>,
    pub destination: Option<String>,
    pub queue: Option<QueueStateView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStateView {
    /// `waiting`, `leased` or `acked`.
    pub status: String,
    pub fence: u64,
    pub delivery_count: u64,
    pub holder: Option<String>,
    pub lease_left_seconds: Option<u64>,
    /// The same as a time of this home's clock.
    #[serde(default)]
    pub lease_until: Option<String>,
    /// When the latest lease began; null where nobody noted it.
    #[serde(default)]
    pub taken_at: Option<String>,
    pub acked_at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimiterView {
    /// `counted`: let in, for one of the budget. `free`: let in, and the id had been counted in this window
    /// already. `refused`: not let in so far. `waiting`: not sent yet, because the budget of the mesh is used up.
    #[serde(default)]
    pub decision: String,
    /// In which it was let in; null while it is not.
    #[serde(default)]
    pub window: Option<u64>,
    pub counted: bool,
    /// How often it was refused, of the attempts that are listed.
    #[serde(default)]
    pub refused: u64,
    #[serde(default)]
    pub last_refused_at: Option<String>,
    /// The limiter's own words, of the last refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// While the mesh waits for its next rate window: when that is, about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl LimiterView {
    /// From what the broker noted when it let the message in, and from the attempts before.
    pub fn of(noted: Option<(u64, bool)>, attempts: &[AttemptView]) -> Option<Self> {
        let is_refusal = |attempt: &&AttemptView| {
            let code = ErrorCode::parse(&attempt.outcome);
            matches!(
                code,
                Some(ErrorCode::RateLimited | ErrorCode::LimiterUnavailable)
            )
        };
        let refusals: Vec<&AttemptView> = attempts.iter().filter(is_refusal).collect();
        let decision = match noted {
            Some((_, true)) => "counted",
            Some((_, false)) => "free",
            None if refusals.is_empty() => return None,
            None => "refused",
        };
        let last = refusals.last();
        Some(Self {
            decision: decision.to_owned(),
            window: noted.map(|(window, _)| window),
            counted: noted.is_some_and(|(_, counted)| counted),
            refused: u64::try_from(refusals.len()).unwrap_or(u64::MAX),
            last_refused_at: last.map(|attempt| attempt.at.clone()),
            detail: last.map(|attempt| attempt.detail.clone()),
            until: None,
        })
    }

    /// Of a message that is not let in so far, while its mesh waits until then: the pause is its reason, whether it
    /// was tried or not.
    pub fn paused(noted: Option<Self>, why: String, until: String) -> Self {
        let before = noted.unwrap_or(Self {
            decision: "waiting".to_owned(),
            window: None,
            counted: false,
            refused: 0,
            last_refused_at: None,
            detail: None,
            until: None,
        });
        Self {
            detail: before.detail.or(Some(why)),
            until: Some(until),
            ..before
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryView {
    pub recipient: String,
    pub delivered_at: Option<String>,
    pub shown_at: Option<String>,
    pub acked_at: Option<String>,
    /// What came, or would come, is not what was sent: it is marked as damaged there, and shown to nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
}

/// An agent that a message names beside its recipients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MentionView {
    pub agent: String,
    /// Null while that is not known.
    pub gets_it: Option<bool>,
}

impl QueueStateView {
    /// With a consumer it is delivered; with one that has given it back, or whose time is over, it is not.
    fn receipts(&self) -> Vec<ReceiptView> {
        let of = |level: Level, at: &Option<String>| {
            at.as_ref().map(|at| ReceiptView {
                level: level.as_str().to_owned(),
                at: at.clone(),
                recipient: self.holder.clone(),
            })
        };
        let is_held = self.status == "leased" || self.status == "acked";
        let taken = of(Level::Delivered, &self.taken_at).filter(|_| is_held);
        taken
            .into_iter()
            .chain(of(Level::Acked, &self.acked_at))
            .collect()
    }
}

impl DeliveryView {
    fn at(&self, level: Level) -> Option<&String> {
        match level {
            Level::Local | Level::Committed => None,
            Level::Delivered => self.delivered_at.as_ref(),
            Level::Shown => self.shown_at.as_ref(),
            Level::Acked => self.acked_at.as_ref(),
        }
    }
}

impl ExplainView {
    /// Whether the level holds for everybody whom the message concerns. A topic without subscribers
    /// concerns nobody: it is delivered as soon as it is committed.
    pub fn has_reached(&self, level: Level) -> bool {
        match level {
            Level::Local => true,
            // Whatever the broker holds, it is not this request.
            _ if self.is_over() => false,
            _ if self.is_lost() => false,
            Level::Committed => self.broker.is_some(),
            _ if self.stale => false,
            _ => match self.broker.as_ref().map(|broker| &broker.queue) {
                None => false,
                Some(Some(queue)) => {
                    queue.status == "acked" || (level < Level::Acked && queue.status == "leased")
                }
                // Nobody can have been shown what nobody receives.
                Some(None) => {
                    !self.may_have_others()
                        && self.deliveries_left_off == 0
                        && !self.deliveries.is_empty()
                        && self.deliveries.iter().all(|d| d.at(level).is_some())
                }
            },
        }
    }

    /// The highest level that holds for everybody, as far as this home knows.
    pub fn level_of_all(&self) -> Level {
        let Some(broker) = self.broker.as_ref().filter(|_| !self.is_lost()) else {
            return Level::Local;
        };
        if let Some(queue) = &broker.queue {
            return match queue.status.as_str() {
                "acked" => Level::Acked,
                "leased" => Level::Delivered,
                _ => Level::Committed,
            };
        }
        if self.may_have_others() || self.deliveries_left_off > 0 || self.deliveries.is_empty() {
            return Level::Committed;
        }
        let holds = |level: &Level| self.deliveries.iter().all(|d| d.at(*level).is_some());
        let above = [Level::Acked, Level::Shown, Level::Delivered];
        above.into_iter().find(holds).unwrap_or(Level::Committed)
    }

    /// The highest level that holds for anybody, and for how many recipients it does.
    pub fn level_of_some(&self) -> Option<(Level, usize)> {
        let count = |level: Level| {
            let reached = self.deliveries.iter().filter(|d| d.at(level).is_some());
            reached.count()
        };
        [Level::Acked, Level::Shown, Level::Delivered]
            .into_iter()
            .map(|level| (level, count(level)))
            .find(|(_, count)| *count > 0)
    }

    /// A direct message has one recipient; of a topic the list must be whole.
    fn may_have_others(&self) -> bool {
        self.deliveries_partial && !self.outbox.to.starts_with('@')
    }

    /// Whether the broker holds it for nobody: a topic that no agent receives.
    pub fn has_nobody(&self) -> bool {
        let is_fanned_out = self.broker.as_ref().is_some_and(|b| b.queue.is_none());
        // Of a direct message one is known; whether that one takes it is its own affair.
        is_fanned_out
            && !self.outbox.to.starts_with('@')
            && !self.stale
            && !self.deliveries_partial
            && self.deliveries.is_empty()
            && self.deliveries_left_off == 0
    }

    /// Whether the broker had it and does not have it now, though it should.
    pub fn is_lost(&self) -> bool {
        self.broker.is_none() && self.lost.as_ref().is_some_and(|lost| lost.open)
    }

    /// The same, and a person has let it be.
    pub fn is_dropped(&self) -> bool {
        self.broker.is_none() && self.lost.as_ref().is_some_and(LostView::is_dropped)
    }

    /// What to say of a message that a disk has changed, and what helps: it gets no further by itself.
    pub fn held_back(&self) -> Option<(&'static str, String)> {
        self.damaged.then(|| {
            let says = if self.gone {
                "it cannot get any further: its bytes are gone from the broker, and nobody there has pruned them"
            } else {
                "it is held back: its bytes are not what was sent any more, a disk has changed them"
            };
            let next = format!(
                "Send it anew under another id. `heddle broker orphan-check` names it where the broker lies; a backup of \
                 the broker may have it whole (`heddle explain {}` looks again)",
                self.id
            );
            (says, next)
        })
    }

    /// What there is to say of its body at the broker, where that is not simply there.
    pub fn body_at_broker(&self) -> Option<&'static str> {
        if self.broker.as_ref()?.history_available == Some(false) {
            return Some("pruned at the broker; the id stays taken");
        }
        let gone = "gone from the broker, which has pruned none: it was deleted there, or lost; `heddle broker orphan-check` names it";
        self.gone.then_some(gone)
    }

    /// Whether it can still get further by itself.
    pub fn is_over(&self) -> bool {
        let is_stuck = self.broker.is_none() && self.lost.as_ref().is_some_and(LostView::is_stuck);
        is_stuck || matches!(self.outbox.status.as_str(), "dead" | "aborted")
    }

    /// The receipts, from everything else.
    pub fn receipts(&self) -> Vec<ReceiptView> {
        let alone = |level: Level, at: &str| ReceiptView {
            level: level.as_str().to_owned(),
            at: at.to_owned(),
            recipient: None,
        };
        let mut receipts = vec![alone(Level::Local, &self.outbox.enqueued_at)];
        if let Some(broker) = &self.broker {
            let at = broker.committed_at.as_ref();
            receipts.extend(at.map(|at| alone(Level::Committed, at)));
            if let Some(queue) = &broker.queue {
                receipts.extend(queue.receipts());
            }
        }
        for level in [Level::Delivered, Level::Shown, Level::Acked] {
            let of_level = |delivery: &DeliveryView| {
                delivery.at(level).map(|at| ReceiptView {
                    recipient: Some(delivery.recipient.clone()),
                    ..alone(level, at)
                })
            };
            receipts.extend(self.deliveries.iter().filter_map(of_level));
        }
        receipts
    }
}
