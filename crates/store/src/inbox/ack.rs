//! Acknowledging items: the first time counts, the others are told so.

use heddle_core::clock::WallMs;
use heddle_core::names::AgentName;
use rusqlite::params;

use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acked {
    /// Acknowledged by this call.
    pub acked: usize,
    /// Known, but acknowledged before.
    pub already: usize,
    /// Not in this home, or not in this agent's mailboxes.
    pub unknown: Vec<i64>,
}

pub(crate) const ACK: &str = "
    UPDATE inbox SET acked_at = ?2
    WHERE arrival = ?1 AND acked_at IS NULL AND (?3 IS NULL OR agent = ?3)";

pub(crate) const KNOWN: &str = "
    SELECT 1 FROM inbox WHERE arrival = ?1 AND (?2 IS NULL OR agent = ?2)";

impl Store {
    /// With `agent`, only items in mailboxes of that name.
    pub async fn inbox_ack(
        &self,
        arrivals: Vec<i64>,
        agent: Option<AgentName>,
        now: WallMs,
    ) -> Result<Acked, StoreError> {
        self.write(move |connection| {
            let agent = agent.as_ref().map(AgentName::as_str);
            let mut ack = connection.prepare_cached(ACK)?;
            let mut known = connection.prepare_cached(KNOWN)?;
            let mut result = Acked::default();
            for arrival in arrivals {
                if ack.execute(params![arrival, now.0, agent])? == 1 {
                    result.acked += 1;
                } else if known.exists(params![arrival, agent])? {
                    result.already += 1;
                } else {
                    result.unknown.push(arrival);
                }
            }
            Ok(result)
        })
        .await
    }
}
