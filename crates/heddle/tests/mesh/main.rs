//! Homes that share a mesh: membership, sync, publishing, what converges. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod away;
mod converge;
mod given_back;
mod gone_rows;
mod invite_key;
mod log_holes;
mod lost_writes;
mod mesh;
mod mesh_attacks;
mod mesh_create;
mod mesh_standing;
mod offline;
mod peer_grants;
mod published_names;
mod put_back_by_hand;
mod rejoin;
mod snapshot;
mod snapshot_upload;
mod split;
mod sync;
