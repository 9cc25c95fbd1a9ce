//! This home as a member: its keys, and how it joins the meshes of others.

mod claim;
mod config_file;
mod join;
pub(crate) mod keys;
mod links;
mod names;
mod rejoin;
mod standing;

pub(crate) use join::{Joiner, join};
pub(crate) use links::{Link, home_mesh, of_config};
pub(crate) use names::refuse_another_name;
pub(crate) use standing::{Barred, Missed, Remembered, Standing};
