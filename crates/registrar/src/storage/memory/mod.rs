//! The store in memory: the oracle that the databases are compared with.

mod tables;

use std::sync::{Mutex, PoisonError};

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;

use super::contract::{ListPage, ListPlace, LoggedLine, Reached, Seen, Storage};
use super::error::StorageError;
use super::stored;
use crate::authority::NonceHash;
use crate::binding::LogicalKey;
use crate::carry::{Part, Taken as Carried, Unit};
use crate::chain::{Link, Seal};
use crate::command::{Applied, Command};
use crate::facts::Facts;
use crate::kept::Kept;
use crate::rows::{AuditRow, CallRow, Row};
use crate::step::step;
use crate::surface_check::{BINDING_COLUMNS, DOMAIN, Surface};

pub use tables::{Tables, Taken};

#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    meshes: std::collections::BTreeMap<MeshId, Tables>,
    audit: Vec<(MeshId, AuditRow)>,
    chain: Vec<Link>,
    seal: Option<Seal>,
    expected: Option<Link>,
    taken: std::collections::BTreeMap<MeshId, Carried>,
}

impl State {
    fn has(&self, link: Option<Link>) -> bool {
        link.is_none_or(|link| self.chain.contains(&link))
    }

    fn link(
        &mut self,
        mesh: Option<MeshId>,
        rows: &[Row],
        more: &[u8],
    ) -> Result<(), StorageError> {
        if !self.has(self.expected) {
            return Err(StorageError::WentBack);
        }
        let next = Link::after(self.chain.last(), mesh, rows, more);
        self.chain.push(next);
        self.expected = Some(next);
        Ok(())
    }
}

impl Memory {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Memory {
    async fn apply(&self, mesh: MeshId, command: Command) -> Result<Applied, StorageError> {
        let mut state = self.lock();
        let tables = state.meshes.entry(mesh).or_default();
        let mut facts = tables.whole(&command.key, command.ask.nonce())?;
        facts.call = (command.call.as_ref()).and_then(|call| tables.call(&command.by, &call.id));
        let stepped = step(&facts, &command);
        let mut written = tables.clone();
        if !stepped.rows.is_empty() {
            written
                .insert(&stepped.rows)
                .map_err(|Taken| StorageError::Corrupt("the facts were not the rows".into()))?;
        }
        if !stepped.rows.is_empty() {
            state.link(Some(mesh), &stepped.rows, b"")?;
        }
        let facts = facts.with(&stepped.rows);
        state.meshes.insert(mesh, written);
        Ok(Applied {
            kind: stepped.kind,
            code: stepped.code,
            facts,
        })
    }

    async fn facts(
        &self,
        mesh: MeshId,
        key: &LogicalKey,
        nonce: Option<NonceHash>,
    ) -> Result<Facts, StorageError> {
        let state = self.lock();
        let found = state.meshes.get(&mesh);
        found.map_or_else(|| Ok(Facts::default()), |tables| tables.whole(key, nonce))
    }

    async fn call(
        &self,
        mesh: MeshId,
        caller: &str,
        id: &str,
    ) -> Result<Option<CallRow>, StorageError> {
        let state = self.lock();
        let found = state.meshes.get(&mesh);
        Ok(found.and_then(|tables| tables.call(caller, id)))
    }

    async fn key_of(&self, mesh: MeshId, id: &str) -> Result<Option<LogicalKey>, StorageError> {
        let state = self.lock();
        if let Some(key) = state.meshes.get(&mesh).and_then(|t| t.key_of(id)) {
            return Ok(Some(key));
        }
        let mut audit = state.audit.iter();
        let noted = audit.find(|(of, row)| *of == mesh && row.attempt_id == id);
        Ok(noted.and_then(|(_, row)| LogicalKey::parse(&row.key).ok()))
    }

    async fn list(
        &self,
        mesh: MeshId,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<ListPage, StorageError> {
        let state = self.lock();
        let mut found: Vec<(LogicalKey, WallMs)> = state
            .meshes
            .get(&mesh)
            .map(Tables::keys)
            .unwrap_or_default();
        found.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let places = found.into_iter().map(|(key, last_at)| ListPlace {
            last_at,
            key: key.as_str().as_bytes().to_vec(),
        });
        let is_behind = |one: &ListPlace| {
            let behind = |place: &ListPlace| {
                let (at, of) = (one.last_at.0, place.last_at.0);
                at < of || (at == of && one.key > place.key)
            };
            after.as_ref().is_none_or(behind)
        };
        Ok(stored::page(places.filter(is_behind).collect(), limit))
    }

    async fn audit(&self, mesh: MeshId, row: AuditRow) -> Result<(), StorageError> {
        self.lock().audit.push((mesh, row));
        Ok(())
    }

    async fn log(
        &self,
        mesh: MeshId,
        key: Option<&LogicalKey>,
        (before, limit): (Option<i64>, usize),
    ) -> Result<Vec<LoggedLine>, StorageError> {
        let state = self.lock();
        let lines = state.audit.iter().zip(1..);
        let lines = lines
            .filter(|((of, row), _)| *of == mesh && key.is_none_or(|key| key.as_str() == row.key))
            .filter(|(_, seq)| before.is_none_or(|before| *seq < before));
        let mut lines: Vec<LoggedLine> = lines
            .map(|((_, row), seq)| LoggedLine {
                seq,
                row: row.clone(),
            })
            .collect();
        lines.reverse();
        lines.truncate(limit);
        Ok(lines)
    }

    async fn reached(&self, seen: Seen) -> Result<Reached, StorageError> {
        let state = self.lock();
        let rows = state.meshes.values().map(Tables::rows).sum();
        let consumed = || state.meshes.values().flat_map(|tables| &tables.consumed);
        let is_there = |key| consumed().any(|row| row.replay_key == key);
        let last = consumed().max_by_key(|row| row.consumed_at);
        Ok(Reached {
            rows,
            last: last.map(|row| row.replay_key),
            link: state.chain.last().copied(),
            seal: state.seal,
            has_seen: match seen.link {
                Some(_) => state.has(seen.link),
                None => seen.last.is_none_or(is_there),
            },
            gone: 0,
        })
    }

    fn expect(&self, link: Option<Link>) {
        self.lock().expected = link;
    }

    async fn reseal(&self, seal: Seal) -> Result<(), StorageError> {
        let mut state = self.lock();
        state.link(None, &[], &seal.0)?;
        state.seal = Some(seal);
        Ok(())
    }

    async fn take_over(&self, mesh: MeshId, part: Part) -> Result<Carried, StorageError> {
        let mut state = self.lock();
        let before = state.taken.get(&mesh).copied().unwrap_or_default();
        if !part.is_next(&before) {
            return Ok(before);
        }
        let mut tables = state.meshes.get(&mesh).cloned().unwrap_or_default();
        let (mut rows, mut lines, mut skipped) = (Vec::new(), Vec::new(), 0);
        for unit in &part.units {
            if let Unit::Audit(row) = unit {
                lines.push((mesh, row.clone()));
            } else if let Unit::Damaged { .. } = unit {
                let lost = unit.lost(part.at);
                let lost = lost.filter(|(key, _)| tables.damaged.insert(key.clone()));
                lines.extend(lost.map(|(_, line)| (mesh, line)));
            } else if tables.take(unit) {
                rows.extend(unit.rows());
            } else {
                skipped += 1;
            }
        }
        state.link(Some(mesh), &rows, part.said().as_bytes())?;
        state.meshes.insert(mesh, tables);
        state.audit.extend(lines);
        let taken = Carried {
            through: part.through(),
            is_whole: part.is_last,
            skipped: 0,
        };
        state.taken.insert(mesh, taken);
        Ok(Carried { skipped, ..taken })
    }

    async fn taken(&self, mesh: MeshId) -> Result<Carried, StorageError> {
        Ok(self.lock().taken.get(&mesh).copied().unwrap_or_default())
    }

    async fn kept(&self) -> Result<Kept, StorageError> {
        let state = self.lock();
        let effects = state.meshes.values().map(Tables::consumed_count).sum();
        Ok(Kept {
            effects,
            ..Kept::default()
        })
    }

    async fn surface(&self) -> Result<Surface, StorageError> {
        let columns = BINDING_COLUMNS.iter().chain(&["attempt_id"]);
        Ok(Surface {
            unique: ["replay_key", "logical_request_key"]
                .map(|column| vec![column.to_owned()])
                .to_vec(),
            columns: columns.map(|column| (*column).to_owned()).collect(),
            domain: Some(DOMAIN.to_owned()),
            second_consume_refused: true,
            lone_registration_refused: true,
            update_refused: true,
            delete_refused: true,
            writer_is_bound: true,
            // Not on any disk: for tests only, and they know.
            is_durable: true,
            audit_stands_apart: true,
            keeps_receipt: true,
            keeps_horizon: true,
            missing: Vec::new(),
            excess: Vec::new(),
        })
    }
}
