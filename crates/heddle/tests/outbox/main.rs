//! The way out: accepts, the outbox's life, requeue, ages, room, what is said of it. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod accept_table;
mod adversity;
mod full_disk;
mod ipc_accept;
mod lost_acks;
mod old_outbox;
mod outbox;
mod outbox_meshes;
mod outbox_requeue;
mod outbox_room;
mod outbox_words;
mod rate_window;
mod storm;
mod tiny_disk;
mod told_truth;
