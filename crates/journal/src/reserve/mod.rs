//! Reservations: an agent says which paths it works on; a claim in the journal, decided under its lock.

mod glob;
mod held;
mod list;
mod rule;

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_core::clock::WallMs;
use serde::Serialize;
use serde_json::{Value, json};

use crate::action::Action;
use crate::batch::Written;
use crate::blobs;
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::mutate::{Change, Plan, Request};
use crate::requests::Key;
use crate::session::Session;

pub use glob::Glob;
pub(crate) use list::begin_list;
pub(crate) use rule::check_claim;

const CLAIM: &str = "claim";
const PREFIX: &str = "rsv_";
/// The status of one that holds.
const HOLDS: &str = "claimed";
/// A forgotten reservation must end.
const TTL_MAX: Duration = Duration::from_secs(30 * 86_400);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reservation {
    pub glob: String,
    pub owner: String,
    pub expires_at: String,
    /// The answer of a request of this id before: nothing was done now, and by now it may be otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// It is recorded, and its file could not follow: why.
    #[serde(skip)]
    pub late: Option<String>,
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
        self.reserve_once(glob, ttl, None)
    }

    /// The same under an id of the caller's: a retry that comes late, when the paths were given back, takes nothing again.
    pub fn reserve_once(
        &self,
        glob: &Glob,
        ttl: Duration,
        request_id: Option<&str>,
    ) -> Result<Reserved, JournalError> {
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(JournalError::refused(
                "a reservation lasts from 1s up to 30d",
            ));
        }
        self.must_be_on()?;
        let mut session = self.session()?;
        let owner = self.who.agent.clone();
        let asked = json!(["reserve", glob.as_str(), owner, ttl.as_millis().to_string()]);
        let key = request_id
            .map(|id| Key::of_request(id, &asked))
            .transpose()?;
        // IMPORTANT: first. What was answered is answered so, whoever holds the paths by now.
        if let Some(before) = self.answered_before(&session, glob, key.as_ref())? {
            return Ok(Reserved::Granted(before));
        }
        let found = self.held()?;
        for (_, held) in &found.claims {
            if held.owner != owner && Glob::parse(&held.glob).is_ok_and(|g| g.overlaps(glob)) {
                return Ok(Reserved::Held(held.clone()));
            }
        }
        let claims = found.sure()?;
        // One of them may be a reservation, of whatever shape.
        session.must_know_all()?;
        let until = self.now().0 + i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let mut reservation = Reservation {
            glob: glob.as_str().to_owned(),
            owner: owner.clone(),
            expires_at: WallMs(until).to_rfc3339(),
            duplicate: false,
            late: None,
        };
        let document = json!({
            "status": HOLDS,
            "kind": "reservation",
            "scope": reservation.glob,
            "agent": owner,
            "expires_at": reservation.expires_at,
            // A promise to others, and no heartbeat: a lasting field, so that the journal holds it.
            "until": reservation.expires_at,
        });
        let id = id_of(glob, &owner);
        let is_known = session
            .head(CLAIM, &id)?
            .is_some_and(|k| !k.head.is_deleted);
        let action = match self.projection(CLAIM, &id)? {
            Some(Ok(before)) if is_known && before["status"] == HOLDS => Action::Update,
            _ => Action::Claim,
        };
        // IMPORTANT: the list first. An id too many is looked at in vain, one too few is a hole.
        let ids = claims.into_iter().map(|(id, _)| id).chain([id.clone()]);
        session.reserved_to = self.put_reserved(ids.collect(), session.next_seq - 1)?;
        reservation.late = session.put_claims(vec![(id, action, document)], key)?;
        Ok(Reserved::Granted(reservation))
    }

    /// Gives back all that this agent reserved under this very glob; None where it holds none.
    pub fn release(&self, glob: &Glob) -> Result<Option<Reservation>, JournalError> {
        self.release_once(glob, None)
    }

    /// The same under an id of the caller's: a retry that comes late gives nothing back that was taken since.
    pub fn release_once(
        &self,
        glob: &Glob,
        request_id: Option<&str>,
    ) -> Result<Option<Reservation>, JournalError> {
        self.must_be_on()?;
        let mut session = self.session()?;
        let owner = &self.who.agent;
        let asked = json!(["release", glob.as_str(), owner]);
        let key = request_id
            .map(|id| Key::of_request(id, &asked))
            .transpose()?;
        if let Some(before) = self.answered_before(&session, glob, key.as_ref())? {
            return Ok(Some(before));
        }
        let found = self.held()?;
        let is_it = |held: &Reservation| held.owner == *owner && is_same(&held.glob, glob);
        let held = found.claims.iter().filter(|(_, held)| is_it(held));
        // IMPORTANT: under the ids that they have. `journal append` may have taken another one than ours, and several may hold.
        let held: Vec<(String, Reservation)> = held.cloned().collect();
        let Some((_, last)) = held.last().cloned() else {
            return found.sure().map(|_| None);
        };
        let claims = held.into_iter().map(|(id, held)| {
            let document = json!({
                "status": "released",
                "kind": "reservation",
                "scope": held.glob,
                "agent": owner,
                "until": held.expires_at,
            });
            (id, Action::ReleaseClaim, document)
        });
        let late = session.put_claims(claims.collect(), key)?;
        Ok(Some(Reservation {
            glob: glob.as_str().to_owned(),
            late,
            ..last
        }))
    }

    /// The reservation that a request of this very id was about.
    fn answered_before(
        &self,
        session: &Session<'_>,
        glob: &Glob,
        key: Option<&Key>,
    ) -> Result<Option<Reservation>, JournalError> {
        let answered = match key {
            Some(key) => session.answered(key)?,
            None => None,
        };
        let Some(answered) = answered else {
            return Ok(None);
        };
        // One that had nothing to record found it as it was.
        let document = match answered.document {
            Some(document) => document,
            None => self.observe(CLAIM, &id_of(glob, &self.who.agent))?.payload,
        };
        let until = document["until"].as_str().unwrap_or_default();
        Ok(Some(Reservation {
            glob: glob.as_str().to_owned(),
            owner: self.who.agent.clone(),
            expires_at: until.to_owned(),
            duplicate: true,
            late: None,
        }))
    }

    /// What is reserved now, by whomever.
    pub fn reservations(&self) -> Result<Vec<Reservation>, JournalError> {
        let (held, doubt) = self.known_reservations()?;
        doubt.map_or(Ok(held), Err)
    }

    /// The same as far as it is known, and why there may be more.
    pub fn known_reservations(
        &self,
    ) -> Result<(Vec<Reservation>, Option<JournalError>), JournalError> {
        // Every claim is read through to the newest durable state: not being level is no failure.
        let _ = self.level();
        let found = self.held()?;
        let held = found.claims.into_iter().map(|(_, held)| held).collect();
        let doubt = match found.unsure {
            Some(lost) => Some(JournalError::ReservationsLost(lost)),
            // One of them may be a reservation, of whatever shape.
            None => self.must_know_all().err(),
        };
        Ok((held, doubt))
    }

    /// The paths that others have reserved, with who. Fails where none is known and there may be some.
    pub fn blocked(&self, paths: &[String]) -> Result<Vec<(String, Reservation)>, JournalError> {
        let mut blocked = Vec::new();
        let (held, doubt) = self.known_reservations()?;
        let others: Vec<(Glob, Reservation)> = held
            .into_iter()
            .filter(|held| held.owner != self.who.agent)
            .filter_map(|held| Some((Glob::parse(&held.glob).ok()?, held)))
            .collect();
        for path in paths {
            if let Some((_, held)) = others.iter().find(|(glob, _)| glob.matches(path)) {
                blocked.push((path.clone(), held.clone()));
            }
        }
        match doubt.filter(|_| blocked.is_empty() && !paths.is_empty()) {
            Some(doubt) => Err(doubt),
            None => Ok(blocked),
        }
    }

    /// Whether a document of a reservation holds its paths.
    pub(crate) fn holds_now(&self, document: &Value) -> bool {
        live(document, self.now()).is_some()
    }

    fn now(&self) -> WallMs {
        self.world.clock.wall()
    }

    /// Of the list, and of files: git may have taken some away. Without a list the journal is asked.
    fn claim_ids(
        &self,
        listed: Option<&BTreeSet<String>>,
    ) -> Result<BTreeSet<String>, JournalError> {
        let folder = self.layout.family(CLAIM);
        let entries = self.disk().list(&folder).at(&folder)?;
        let files = entries.iter().filter(|entry| !entry.is_dir);
        let files = files.filter_map(|entry| entry.name.strip_suffix(".json"));
        let mut ids: BTreeSet<String> = files.map(str::to_owned).collect();
        ids.extend(listed.into_iter().flatten().cloned());
        // Neither the list nor a file may know of one that was lost, given up, and put back.
        if listed.is_none() || self.is_any_back(&self.cached_lost()?)? {
            let rebuilt = self.rebuild(0)?;
            let all = rebuilt.replay.entities().into_iter();
            let claims = all.filter(|(t, _, e)| *t == CLAIM && !e.head.is_deleted);
            ids.extend(claims.map(|(_, id, _)| id.to_owned()));
        }
        ids.retain(|id| id.starts_with(PREFIX));
        Ok(ids)
    }
}

pub(crate) fn is_reservation(item_type: &str, item_id: &str) -> bool {
    item_type == CLAIM && item_id.starts_with(PREFIX)
}

/// A reservation that holds; one whose time cannot be read (older builds recorded such) does not end by itself, but by `release`.
fn live(document: &Value, now: WallMs) -> Option<Reservation> {
    let word = |name: &str| document[name].as_str().map(str::to_owned);
    let expires_at = word("until").or_else(|| word("expires_at"));
    let expires_at = expires_at.unwrap_or_default();
    let is_over = WallMs::parse_rfc3339(&expires_at).is_some_and(|until| until <= now);
    (document["status"] == HOLDS && !is_over).then_some(())?;
    Some(Reservation {
        glob: word("scope")?,
        owner: word("agent")?,
        expires_at,
        duplicate: false,
        late: None,
    })
}

fn id_of(glob: &Glob, owner: &str) -> String {
    let key = format!("{owner}\0{}", glob.as_str());
    format!("{PREFIX}{}", &blobs::sha256_hex(key.as_bytes())[..24])
}

/// Also where whoever recorded it wrote the pattern in another way.
fn is_same(scope: &str, glob: &Glob) -> bool {
    scope == glob.as_str() || Glob::parse(scope).is_ok_and(|scope| scope == *glob)
}

impl Session<'_> {
    /// All in one batch. The first one's record answers the request. What could not follow behind the record is no failure of it: everybody
    /// is told from the record, and whoever comes next brings the file along.
    fn put_claims(
        &mut self,
        claims: Vec<(String, Action, Value)>,
        mut key: Option<Key>,
    ) -> Result<Option<String>, JournalError> {
        let journal = self.journal;
        let mut plan = Plan::default();
        for (id, action, document) in claims {
            let request = Request {
                writer: journal.writer.clone(),
                who: journal.who.clone(),
                changes: vec![Change {
                    item_type: CLAIM.to_owned(),
                    item_id: Some(id),
                    action: Some(action),
                    document: Some(document),
                    summary: None,
                }],
                key: key.take(),
            };
            plan.add(self, &request)?;
        }
        if plan.drafts.is_empty() {
            self.follow(None, &plan)?;
            return Ok(None);
        }
        let written = self.write(&plan.drafts)?;
        let followed = self.follow(Some(&written), &plan);
        Ok(followed.err().map(|error| error.to_string()))
    }

    fn follow(&mut self, written: Option<&Written>, plan: &Plan) -> Result<(), JournalError> {
        if let Some(written) = written {
            self.apply(written)?;
            self.write_meta(false)?;
        }
        for (item_type, item_id, document) in &plan.ephemeral {
            self.journal
                .write_projection(item_type, item_id, document)?;
        }
        Ok(())
    }
}
