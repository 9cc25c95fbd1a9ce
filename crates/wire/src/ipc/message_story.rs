//! `GET /v1/explain/{id}` for a message of which this home's outbox has no row: what the broker and the mailboxes of
//! this home know of it, and which layer has nothing.

use serde::{Deserialize, Serialize};

use super::explain::{BrokerView, DeliveryView, Level, LimiterView, ReceiptView};
use super::outbox::OutboxRow;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageStory {
    pub id: String,
    /// `message`.
    pub kind: String,
    pub mesh: String,
    /// The story in a sentence.
    pub says: String,
    /// Which layer has rows of it, and which has none.
    pub layers: LayersView,
    /// Always null: a send of this home is told as such.
    pub outbox: Option<Box<OutboxRow>>,
    /// What the broker holds, or what a delivery told of it; null where neither is known.
    pub broker: Option<BrokerView>,
    pub limiter: Option<LimiterView>,
    /// Recipients, as the broker tells them to whoever sent it; empty for everybody else.
    pub deliveries: Vec<DeliveryView>,
    #[serde(default)]
    pub deliveries_left_off: u64,
    /// The copies in mailboxes of this home that the caller asked about.
    pub inbox: Vec<InboxCopyView>,
    pub receipts: Vec<ReceiptView>,
    /// True where the broker should have been asked and could not.
    pub stale: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_why: Option<String>,
    /// A command that tells more, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayersView {
    pub outbox: LayerView,
    pub broker: LayerView,
    pub inbox: LayerView,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerView {
    /// `present`; `absent`; `past`: there was one, and only its id is left; `not_asked`: only the sender's home may
    /// ask; `unreachable`: it could not be asked now.
    pub rows: String,
    pub says: String,
}

impl LayerView {
    pub fn new(rows: &str, says: impl Into<String>) -> Self {
        Self {
            rows: rows.to_owned(),
            says: says.into(),
        }
    }
}

/// One message in one mailbox, without its text: that is the inbox's to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxCopyView {
    /// Its place in this home's order of arrival, as the inbox has it.
    pub id: String,
    pub mesh: String,
    /// The mailbox.
    pub agent: String,
    /// The same as `@member/agent`.
    pub recipient: String,
    /// `@member/agent` of the sender.
    pub from: String,
    pub client_message_id: String,
    pub topic: Option<String>,
    pub priority: String,
    pub broker_message_id: String,
    pub history_id: String,
    pub received_at: String,
    pub shown_at: Option<String>,
    pub acked_at: Option<String>,
    pub reply_to_id: Option<String>,
    /// True where what is kept of it is not what was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
}

impl InboxCopyView {
    /// How far it has come in this mailbox.
    pub fn level(&self) -> Level {
        match (&self.acked_at, &self.shown_at) {
            (Some(_), _) => Level::Acked,
            (None, Some(_)) => Level::Shown,
            (None, None) => Level::Delivered,
        }
    }
}

impl MessageStory {
    /// The receipts, from everything else. Of a level at one recipient the broker's and the mailbox's word are one.
    pub fn receipts(&self) -> Vec<ReceiptView> {
        let committed = self.broker.as_ref().and_then(|b| b.first_seen_at.clone());
        let mut receipts: Vec<ReceiptView> = committed
            .into_iter()
            .map(|at| ReceiptView {
                level: Level::Committed.as_str().to_owned(),
                at,
                recipient: None,
            })
            .collect();
        for level in [Level::Delivered, Level::Shown, Level::Acked] {
            let told = self.deliveries.iter().filter_map(|one| {
                let at = match level {
                    Level::Delivered => &one.delivered_at,
                    Level::Shown => &one.shown_at,
                    _ => &one.acked_at,
                };
                Some((one.recipient.clone(), at.clone()?))
            });
            let here = self.inbox.iter().filter_map(|one| {
                let at = match level {
                    Level::Delivered => Some(&one.received_at),
                    Level::Shown => one.shown_at.as_ref(),
                    _ => one.acked_at.as_ref(),
                };
                Some((one.recipient.clone(), at?.clone()))
            });
            let told: Vec<(String, String)> = told.collect();
            let own: Vec<(String, String)> = here
                .filter(|(own, _)| told.iter().all(|(recipient, _)| recipient != own))
                .collect();
            let all = told.into_iter().chain(own);
            receipts.extend(all.map(|(recipient, at)| ReceiptView {
                level: level.as_str().to_owned(),
                at,
                recipient: Some(recipient),
            }));
        }
        receipts
    }
}
