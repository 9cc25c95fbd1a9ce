//! This home as a member: its keys, and how it joins the meshes of others.

mod claim;
mod config_file;
mod join;
pub(crate) mod keys;
mod links;

pub(crate) use join::{Joiner, join};
pub(crate) use links::{Link, home_mesh, of_config};
