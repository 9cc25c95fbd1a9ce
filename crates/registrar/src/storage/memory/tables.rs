//! The tables of one mesh as plain values, with the unique keys that the databases have.

use heddle_core::clock::WallMs;

use crate::authority::NonceHash;
use crate::binding::LogicalKey;
use crate::carry::Unit;
use crate::facts::{Envelope, Facts, NonceFacts};
use crate::rows::{CallRow, ConsumeRow, DecisionRow, EnvelopeRow, RegistrationRow, Row, StepRow};
use crate::storage::error::StorageError;
use crate::storage::stored;

/// A unique key is taken; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    pub envelopes: Vec<EnvelopeRow>,
    pub decisions: Vec<DecisionRow>,
    pub consumed: Vec<ConsumeRow>,
    pub registrations: Vec<RegistrationRow>,
    pub steps: Vec<StepRow>,
    pub calls: Vec<CallRow>,
    /// Keys that came damaged from elsewhere.
    pub damaged: std::collections::BTreeSet<LogicalKey>,
}

impl Tables {
    /// The facts of a key that did not come damaged.
    pub(super) fn whole(
        &self,
        key: &LogicalKey,
        nonce: Option<NonceHash>,
    ) -> Result<Facts, StorageError> {
        if self.damaged.contains(key) {
            let key = key.to_string();
            return Err(StorageError::CameDamaged { key });
        }
        Ok(self.facts(key, nonce))
    }

    pub fn facts(&self, key: &LogicalKey, nonce: Option<NonceHash>) -> Facts {
        let envelopes = self.envelopes.iter().filter(|row| row.effect.key == *key);
        Facts {
            envelopes: stored::envelopes(envelopes.cloned().collect(), self.decisions.clone()),
            nonce: nonce.and_then(|nonce| self.nonce(nonce)),
            consumed: self
                .consumed
                .iter()
                .find(|row| row.effect.key == *key)
                .cloned(),
            registration: self
                .registrations
                .iter()
                .find(|row| row.key == *key)
                .cloned(),
            steps: self
                .steps
                .iter()
                .filter(|row| row.key == *key)
                .cloned()
                .collect(),
            call: None,
        }
    }

    /// Those that say how far it has come.
    pub(super) fn rows(&self) -> u64 {
        (self.decisions.len() + self.consumed.len() + self.steps.len()) as u64
    }

    pub(super) fn consumed_count(&self) -> u64 {
        self.consumed.len() as u64
    }

    pub fn call(&self, caller: &str, id: &str) -> Option<CallRow> {
        let mut rows = self.calls.iter();
        rows.find(|row| row.caller == caller && row.id == id)
            .cloned()
    }

    fn nonce(&self, nonce: NonceHash) -> Option<NonceFacts> {
        let granted = |row: &&DecisionRow| row.grant.is_some_and(|grant| grant.nonce == nonce);
        let id = &self.decisions.iter().find(granted)?.envelope_id;
        let row = self.envelopes.iter().find(|row| row.envelope_id == *id)?;
        let decisions = self.decisions.iter().filter(|row| row.envelope_id == *id);
        let envelope = Envelope {
            row: row.clone(),
            decisions: decisions.cloned().collect(),
        };
        stored::nonce_facts(envelope, nonce, self.is_used(nonce))
    }

    fn is_used(&self, nonce: NonceHash) -> bool {
        self.consumed.iter().any(|row| row.nonce == nonce)
            || self.steps.iter().any(|row| row.nonce == Some(nonce))
    }

    pub fn key_of(&self, id: &str) -> Option<LogicalKey> {
        let mut envelopes = self.envelopes.iter();
        if let Some(found) = envelopes.find(|row| row.envelope_id == id) {
            return Some(found.effect.key.clone());
        }
        let mut registrations = self.registrations.iter();
        if let Some(found) = registrations.find(|row| row.registration_id == id) {
            return Some(found.key.clone());
        }
        let consumed = self.consumed.iter().filter(|row| row.attempt_id == id);
        let steps = self.steps.iter().filter(|row| row.attempt_id == id);
        let keys = consumed.map(|row| &row.effect.key);
        keys.chain(steps.map(|row| &row.key)).min().cloned()
    }

    /// Every key with the time of its newest envelope.
    pub fn keys(&self) -> Vec<(LogicalKey, WallMs)> {
        let damaged = self.damaged.iter().map(|key| (key.clone(), WallMs(0)));
        let mut keys: std::collections::BTreeMap<_, _> = damaged.collect();
        for row in &self.envelopes {
            let last = keys
                .entry(row.effect.key.clone())
                .or_insert(row.requested_at);
            *last = (*last).max(row.requested_at);
        }
        keys.into_iter().collect()
    }

    /// All of the rows, or none.
    pub fn insert(&mut self, rows: &[Row]) -> Result<(), Taken> {
        if rows.iter().any(|row| self.collides(row)) {
            return Err(Taken);
        }
        for row in rows.iter().cloned() {
            match row {
                Row::Envelope(row) => self.envelopes.push(row),
                Row::Decision(row) => self.decisions.push(row),
                Row::Consume(row) => self.consumed.push(row),
                Row::Registration(row) => self.registrations.push(row),
                Row::Step(row) => self.steps.push(row),
                Row::Call(row) => self.calls.push(row),
            }
        }
        Ok(())
    }

    /// What another authority has written; false where something else stands in its place.
    pub(super) fn take(&mut self, unit: &Unit) -> bool {
        if let Unit::Step { of, row, .. } = unit {
            let mut consumed = self.consumed.iter();
            let bound = consumed.find(|consumed| consumed.effect.key == row.key);
            if bound.map(|consumed| consumed.replay_key) != Some(*of) {
                return false;
            }
        }
        self.insert(&unit.rows()).is_ok()
    }

    fn collides(&self, row: &Row) -> bool {
        match row {
            Row::Envelope(new) => self
                .envelopes
                .iter()
                .any(|row| row.envelope_id == new.envelope_id),
            Row::Decision(new) => self.decisions.iter().any(|row| {
                let same_nonce =
                    new.grant.is_some() && row.grant.map(|g| g.nonce) == new.grant.map(|g| g.nonce);
                (row.envelope_id == new.envelope_id && row.seq == new.seq) || same_nonce
            }),
            Row::Consume(new) => self.consumed.iter().any(|row| {
                row.effect.key == new.effect.key
                    || row.replay_key == new.replay_key
                    || row.nonce == new.nonce
            }),
            Row::Registration(new) => self.registrations.iter().any(|row| row.key == new.key),
            Row::Step(new) => self.steps.iter().any(|row| {
                let same_step = row.key == new.key
                    && row.round == new.round
                    && row.step.column() == new.step.column();
                same_step || (new.nonce.is_some() && row.nonce == new.nonce)
            }),
            Row::Call(new) => self.call(&new.caller, &new.id).is_some(),
        }
    }
}
