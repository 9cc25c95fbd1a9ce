//! What the registrar needs from a store, and what every store promises.
//!
//! **One transaction, all or nothing.** `apply` loads the facts of the key, asks [`crate::step::step`] and
//! writes all of its rows, or none. A consume row exists exactly when its registration row does (RG-02).
//!
//! **The database says what is unique.** The logical key, the replay key, a nonce, and a caller's own id
//! for a request are consumed once,
//! whatever the program that inserts believes; an attempt is in no unique key (RG-05). A store that finds
//! itself beaten to a unique key rolls back, loads again and asks again with `after_a_lost_race`.
//!
//! **Nothing changes.** Rows of envelopes, decisions, consumption, registration, steps and audit are
//! refused by the database itself when anybody updates or deletes them (RG-16). There is no sweep.
//!
//! **Answered means durable.** `Ok` is given after the commit. After `Unavailable` the outcome is unknown,
//! and `facts` is the way to learn it (C14); after every other error nothing was written.
//!
//! **The audit stands apart.** `audit` has a transaction of its own and survives what it tells of (RG-11).
//!
//! **What is answered from is compared.** Registrations and steps have a digest beside them ([`crate::kept`]); whoever
//! reads one that differs gets `Changed`, and never its bytes.
//!
//! **One chain.** Every transaction that writes what is decided by adds a link to the chain ([`crate::chain`]): a
//! store that has a link has everything that came before it.
//!
//! **Reads write nothing** (RG-12), and meshes are apart. Times and ids are handed in.

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;

use super::error::StorageError;
use crate::authority::NonceHash;
use crate::binding::{LogicalKey, ReplayKey};
use crate::carry::{Part, Taken};
use crate::chain::{Link, Seal};
use crate::command::{Applied, Command};
use crate::facts::Facts;
use crate::kept::Kept;
use crate::rows::{AuditRow, CallRow};
use crate::surface_check::Surface;

type Answer<T> = Result<T, StorageError>;

/// A key that somebody asked for or used, newest first in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEffect {
    pub key: LogicalKey,
    pub last_at: WallMs,
}

/// Where a page of the list ends: behind it comes what is older, and of one moment what has the greater key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPlace {
    pub last_at: WallMs,
    /// As it lies in the store, also where it is no key any more.
    pub key: Vec<u8>,
}

/// A page of the list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    pub effects: Vec<ListedEffect>,
    /// None where nothing comes behind it.
    pub next: Option<ListPlace>,
}

/// One line of what happened, from whichever table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedLine {
    pub seq: i64,
    pub row: AuditRow,
}

/// How far a store has come: it never goes back, unless somebody puts an older one in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Decisions, consumptions and steps, of all meshes.
    pub rows: u64,
    /// The newest consumption.
    pub last: Option<ReplayKey>,
    /// The newest link of the chain; none in a store of before there was one.
    pub link: Option<Link>,
    pub seal: Option<Seal>,
    /// Whether everything that was asked for is there; true where nothing was.
    pub has_seen: bool,
    /// Rows that were written and are not there, as the counts of their keys say. Counted only where there are fewer than
    /// were seen: what is missing of a key makes no earlier copy of the store.
    pub gone: u64,
}

impl Reached {
    /// Somebody was proven more than this store has, and no person has said since to go on with it.
    pub fn is_broken(&self) -> bool {
        self.seal.is_some_and(|seal| seal.is_broken())
    }
}

/// What somebody remembers of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many rows; 0 where a link says more than any number.
    pub rows: u64,
    /// Asked for only without a link: whoever has that has all that came before it.
    pub last: Option<ReplayKey>,
    pub link: Option<Link>,
}

pub trait Storage: Send + Sync + 'static {
    /// One command, one transaction.
    fn apply(&self, mesh: MeshId, command: Command)
    -> impl Future<Output = Answer<Applied>> + Send;

    /// Everything about a key, and about a nonce where one is given.
    fn facts(
        &self,
        mesh: MeshId,
        key: &LogicalKey,
        nonce: Option<NonceHash>,
    ) -> impl Future<Output = Answer<Facts>> + Send;

    /// What a caller's own id was used for. `apply` asks for itself, in its transaction.
    fn call(
        &self,
        mesh: MeshId,
        caller: &str,
        id: &str,
    ) -> impl Future<Output = Answer<Option<CallRow>>> + Send;

    /// The key that an envelope, a registration or an attempt belongs to.
    fn key_of(
        &self,
        mesh: MeshId,
        id: &str,
    ) -> impl Future<Output = Answer<Option<LogicalKey>>> + Send;

    /// The newest keys, or those behind a place. Who is asked for again meanwhile is found before it: nobody who stays where
    /// they are is left out or told twice.
    fn list(
        &self,
        mesh: MeshId,
        after: Option<ListPlace>,
        limit: usize,
    ) -> impl Future<Output = Answer<ListPage>> + Send;

    /// Writes a line of the audit in a transaction of its own.
    fn audit(&self, mesh: MeshId, row: AuditRow) -> impl Future<Output = Answer<()>> + Send;

    /// The newest lines of the audit, of one key or of all; with a number in `page`, those before that line.
    fn log(
        &self,
        mesh: MeshId,
        key: Option<&LogicalKey>,
        page: (Option<i64>, usize),
    ) -> impl Future<Output = Answer<Vec<LoggedLine>>> + Send;

    /// How far it has come, all that was answered included; and whether it has what was seen of it.
    fn reached(&self, seen: Seen) -> impl Future<Output = Answer<Reached>> + Send;

    /// From now on nothing is written where this link is not, nor any that was written since: `WentBack`. Asked in
    /// each transaction that writes, because a database can be put back under those who use it.
    fn expect(&self, link: Option<Link>);

    /// Gives the store a new seal, as a link of its chain.
    fn reseal(&self, seal: Seal) -> impl Future<Output = Answer<()>> + Send;

    /// Takes over a stretch of what another authority has written, in one transaction, if it is the next one
    /// ([`Part::is_next`]). What stands is never replaced.
    fn take_over(&self, mesh: MeshId, part: Part) -> impl Future<Output = Answer<Taken>> + Send;

    /// How much of this mesh was taken over.
    fn taken(&self, mesh: MeshId) -> impl Future<Output = Answer<Taken>> + Send;

    /// What the store shows of itself to the surface check. Leaves nothing behind.
    fn surface(&self) -> impl Future<Output = Answer<Surface>> + Send;

    /// Looks through every effect of every mesh, whether it is as it was written.
    fn kept(&self) -> impl Future<Output = Answer<Kept>> + Send;
}
