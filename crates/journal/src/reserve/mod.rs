//! Reservations: an agent says which paths it works on; a claim in the journal, decided under its lock.

mod glob;

use std::time::Duration;

use heddle_core::clock::WallMs;
use serde::Serialize;
use serde_json::{Value, json};

use crate::action::Action;
use crate::blobs;
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::mutate::{Change, Plan, Request};
use crate::session::Session;

pub use glob::Glob;

const CLAIM: &str = "claim";
const PREFIX: &str = "rsv_";
/// A forgotten reservation must end.
const TTL_MAX: Duration = Duration::from_secs(30 * 86_400);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reservation {
    pub glob: String,
    pub owner: String,
    pub expires_at: String,
}

/// What came of asking for paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// Ours, until then.
    Granted(Reservation),
    /// Somebody else works there; nothing was written.
    Held(Reservation),
}

impl Journal {
    /// The same glob again by its owner is a longer time.
    pub fn reserve(&self, glob: &Glob, ttl: Duration) -> Result<Reserved, JournalError> {
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(JournalError::refused("a reservation lasts up to 30d"));
        }
        self.must_be_on()?;
        let mut session = self.session()?;
        let owner = self.who.agent.clone();
        for held in self.claims()? {
            if held.owner != owner && Glob::parse(&held.glob).is_ok_and(|g| g.overlaps(glob)) {
                return Ok(Reserved::Held(held));
            }
        }
        let until = self.now().0 + i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let reservation = Reservation {
            glob: glob.as_str().to_owned(),
            owner: owner.clone(),
            expires_at: WallMs(until).to_rfc3339(),
        };
        let document = json!({
            "status": "claimed",
            "kind": "reservation",
            "scope": reservation.glob,
            "agent": owner,
            "expires_at": reservation.expires_at,
        });
        let id = id_of(glob, &owner);
        let is_known = session
            .head(CLAIM, &id)?
            .is_some_and(|k| !k.head.is_deleted);
        // Known and still held: only the time changes, and time is no record (JN-29).
        let action = match self.projection(CLAIM, &id)? {
            Some(Ok(before)) if is_known && before["status"] == "claimed" => Action::Update,
            _ => Action::Claim,
        };
        session.put_claim(&id, action, document)?;
        Ok(Reserved::Granted(reservation))
    }

    /// Gives back what this agent reserved under this very glob; None where it holds none.
    pub fn release(&self, glob: &Glob) -> Result<Option<Reservation>, JournalError> {
        self.must_be_on()?;
        let mut session = self.session()?;
        let owner = &self.who.agent;
        let held = self
            .claims()?
            .into_iter()
            .find(|held| held.owner == *owner && held.glob == glob.as_str());
        let Some(held) = held else {
            return Ok(None);
        };
        let document = json!({
            "status": "released",
            "kind": "reservation",
            "scope": held.glob,
            "agent": owner,
        });
        session.put_claim(&id_of(glob, owner), Action::ReleaseClaim, document)?;
        Ok(Some(held))
    }

    /// What is reserved now, by whomever.
    pub fn reservations(&self) -> Result<Vec<Reservation>, JournalError> {
        // Every claim is read through to the newest durable state: not being level is no failure.
        let _ = self.level();
        self.claims()
    }

    /// The paths that others have reserved, with who.
    pub fn blocked(&self, paths: &[String]) -> Result<Vec<(String, Reservation)>, JournalError> {
        let mut blocked = Vec::new();
        let others = self.reservations()?.into_iter();
        let others: Vec<(Glob, Reservation)> = others
            .filter(|held| held.owner != self.who.agent)
            .filter_map(|held| Some((Glob::parse(&held.glob).ok()?, held)))
            .collect();
        for path in paths {
            if let Some((_, held)) = others.iter().find(|(glob, _)| glob.matches(path)) {
                blocked.push((path.clone(), held.clone()));
            }
        }
        Ok(blocked)
    }

    fn now(&self) -> WallMs {
        self.world.clock.wall()
    }

    fn claims(&self) -> Result<Vec<Reservation>, JournalError> {
        let now = self.now();
        let folder = self.layout.family(CLAIM);
        let mut all = Vec::new();
        for entry in self.disk().list(&folder).at(&folder)? {
            let id = entry.name.strip_suffix(".json").unwrap_or_default();
            if !id.starts_with(PREFIX) || entry.is_dir {
                continue;
            }
            // Through to the newest durable state, also while somebody writes (J3).
            let document = match self.observe(CLAIM, id) {
                Ok(shown) => shown.payload,
                Err(JournalError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            all.extend(live(&document, now));
        }
        Ok(all)
    }
}

/// A reservation that holds; one whose time cannot be read does not end by itself.
fn live(document: &Value, now: WallMs) -> Option<Reservation> {
    let word = |name: &str| document[name].as_str().map(str::to_owned);
    let expires_at = word("expires_at").unwrap_or_default();
    let is_over = WallMs::parse_rfc3339(&expires_at).is_some_and(|until| until <= now);
    (document["status"] == "claimed" && !is_over).then_some(())?;
    Some(Reservation {
        glob: word("scope")?,
        owner: word("agent")?,
        expires_at,
    })
}

fn id_of(glob: &Glob, owner: &str) -> String {
    let key = format!("{owner}\0{}", glob.as_str());
    format!("{PREFIX}{}", &blobs::sha256_hex(key.as_bytes())[..24])
}

impl Session<'_> {
    fn put_claim(&mut self, id: &str, action: Action, document: Value) -> Result<(), JournalError> {
        let journal = self.journal;
        let request = Request {
            writer: journal.writer.clone(),
            who: journal.who.clone(),
            changes: vec![Change {
                item_type: CLAIM.to_owned(),
                item_id: Some(id.to_owned()),
                action: Some(action),
                document: Some(document),
                summary: None,
            }],
        };
        let mut plan = Plan::default();
        plan.add(self, &request)?;
        if !plan.drafts.is_empty() {
            let written = self.write(&plan.drafts)?;
            self.apply(&written)?;
            self.write_meta(false)?;
        }
        for (item_type, item_id, document) in plan.ephemeral {
            journal.write_projection(&item_type, &item_id, &document)?;
        }
        Ok(())
    }
}
