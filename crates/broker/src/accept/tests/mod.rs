//! The gate against its invariants: BR-01 to BR-17, RL-03, RL-08, C1, C4.

mod broken;
mod budget;
mod contract;
mod inventory;
mod phases;
mod races;
mod refusals;
