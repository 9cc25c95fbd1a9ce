//! Floors: what the machine itself allows, measured in the same run as the product.

pub mod append;
pub mod group_commit;
pub mod http;
pub mod outbox_table;
pub mod single_insert;
