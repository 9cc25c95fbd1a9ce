//! What arrives: inbox, queues, receipts, stories of an id, links and identities, the specs' tables over the broker. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod broker;
mod broker_jobs;
mod changed_bodies;
mod close_reasons;
mod damaged_told;
mod delivery_truth;
mod events;
mod explain;
mod inbox;
mod inbox_arrivals;
mod inbox_damage;
mod kill_storm;
mod known_ids;
mod names;
mod older_broker;
mod pages;
mod queue;
mod queue_leases;
mod queue_verbs;
mod receipt_times;
mod same_identity;
mod spec_broker;
mod spec_failures;
mod threads;
mod two_meshes;
