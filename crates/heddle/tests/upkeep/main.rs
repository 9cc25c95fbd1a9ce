//! A home's files: damage, repair, backup, migrations, the doctor, the broker's jobs. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod born_private;
mod changed_rows;
mod damage;
mod damaged_cells;
mod doctor_looks;
mod file_verdicts;
mod log_damage;
mod lost_mesh;
mod made_meshes;
mod migrations;
mod misplaced_files;
mod misplaced_places;
mod not_json;
mod not_whole;
mod orphan_schedule;
mod repair_schema;
mod stop_in_time;
mod taken_away;
mod upkeep;
mod upkeep_room;
mod vector_numbers;
mod whole_backup;
