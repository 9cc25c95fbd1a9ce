//! This home as a member: its keys, the meshes that it makes, and how it joins those of others.

mod claim;
mod config_file;
mod create;
mod join;
pub(crate) mod keys;
mod links;
mod names;
mod publish_to;
mod rejoin;
mod standing;

pub(crate) use create::{create, host, key_reused};
pub(crate) use join::{Joiner, join};
pub(crate) use links::{Link, home_mesh, of_config};
pub(crate) use names::refuse_another_name;
pub(crate) use publish_to::{Destination, go_on, publish_to};
pub(crate) use standing::{Barred, Missed, Remembered, Standing, Unfit};
