//! The store through its public door, on real files; the raw connection beside it plays the vandal.
#![allow(clippy::unwrap_used, clippy::panic)]

mod accept;
mod bad_data;
mod blobs;
mod data;
mod drain;
mod files;
mod files_sweep;
mod fixture;
mod guards;
mod inbox;
mod inbox_life;
mod life;
mod lists;
mod meshes;
mod model;
mod open;
mod pair;
mod park;
mod requeue;
mod search;
mod sync;
mod sync_home;
mod task_sync;
mod tasks;
mod vectors;
