//! One-time effects, killed, raced, cut off and explained. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod effect_kills;
mod effects;
mod effects_again;
mod effects_approvals;
mod effects_changed;
mod effects_ends;
mod effects_https;
mod effects_looks;
mod effects_lost;
mod effects_mesh;
mod effects_moved;
mod effects_no_text;
mod effects_offline;
mod effects_printed;
mod effects_put_back;
mod effects_rights;
mod effects_signals;
mod effects_slow;
mod effects_standing;
mod effects_start_lost;
mod effects_story;
mod effects_team;
mod effects_told;
mod effects_truth;
mod effects_words;
