//! Faulty worlds for the real code: so far a disk under SQLite that loses power, syncs and space.

pub mod crash_vfs;
