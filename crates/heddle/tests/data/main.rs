//! The local-first data: memory, state, tasks, files, vectors. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod carried_files;
mod claims_told;
mod data;
mod data_hostile;
mod explain_data;
mod files;
mod files_cost;
mod files_gone;
mod files_storm;
mod files_synced;
mod known_ids;
mod spellings;
mod tasks;
mod values;
mod vectors;
mod vectors_moved;
mod vectors_providers;
