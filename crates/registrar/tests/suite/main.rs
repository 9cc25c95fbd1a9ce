//! One suite over every store: the same cases on memory, SQLite and PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests are told by the environment where PostgreSQL is, and name schemas by the clock"
)]

#[macro_use]
mod world;
mod approval;
mod calls;
mod carried;
mod chain;
mod expiry;
mod faults;
mod given_back;
mod gone;
mod guards;
mod kept;
mod life;
mod model;
mod pages;
mod races;
mod register;
mod rights;
mod unfit;
mod waiting;
