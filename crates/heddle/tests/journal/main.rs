//! The repository journal and its guard. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod guard;
mod journal;
mod journal_advice;
mod journal_doctor;
mod journal_doors;
mod journal_drift;
mod journal_keys;
mod journal_mends;
mod journal_migrate;
mod journal_pull;
mod journal_readers;
mod journal_slices;
mod journal_words;
