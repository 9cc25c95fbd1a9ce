//! The team broker: PostgreSQL, Redis, TLS, several brokers, its files for operators. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod door_bodies;
mod door_places;
mod full_database;
mod limiter_back;
mod limiter_tls;
mod one_address;
mod ops_files;
mod put_back_database;
mod rights_of_database;
mod team;
mod team_adversity;
mod team_members;
mod team_push;
mod team_storm;
mod team_tls;
mod unfit_database;
mod wss;
