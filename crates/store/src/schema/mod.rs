//! The schema as forward-only steps. A released step never changes; a change is a new file.

use heddle_sqlite::Migration;

pub(crate) const MIGRATIONS: &[Migration] = &[
    step(1, "messages", include_str!("v1_messages.sql")),
    step(2, "outbox_life", include_str!("v2_outbox_life.sql")),
    step(3, "inbox", include_str!("v3_inbox.sql")),
    step(4, "data", include_str!("v4_data.sql")),
    step(5, "tasks", include_str!("v5_tasks.sql")),
    step(6, "sync", include_str!("v6_sync.sql")),
    step(7, "files", include_str!("v7_files.sql")),
    step(8, "vectors", include_str!("v8_vectors.sql")),
    step(9, "publish", include_str!("v9_publish.sql")),
    step(10, "log_clock", include_str!("v10_log_clock.sql")),
    step(11, "inbox_lost", include_str!("v11_inbox_lost.sql")),
    step(12, "fetch", include_str!("v12_fetch.sql")),
    step(13, "floor", include_str!("v13_floor.sql")),
    step(14, "snapshot", include_str!("v14_snapshot.sql")),
    step(15, "invite", include_str!("v15_invite.sql")),
    step(16, "outbox_missing", include_str!("v16_outbox_missing.sql")),
    step(17, "effects_used", include_str!("v17_effects_used.sql")),
    step(18, "dead_is_done", include_str!("v18_dead_is_done.sql")),
    step(19, "upload", include_str!("v19_upload.sql")),
    step(20, "outbox_lost", include_str!("v20_outbox_lost.sql")),
    step(21, "outbox_urgent", include_str!("v21_outbox_urgent.sql")),
    step(
        22,
        "inbox_fingerprint",
        include_str!("v22_inbox_fingerprint.sql"),
    ),
    step(23, "vector_digest", include_str!("v23_vector_digest.sql")),
    step(24, "vector_named", include_str!("v24_vector_named.sql")),
    step(25, "row_digest", include_str!("v25_row_digest.sql")),
    step(26, "file_before", include_str!("v26_file_before.sql")),
];

const fn step(version: u32, name: &'static str, sql: &'static str) -> Migration {
    Migration { version, name, sql }
}

/// The version that this program leads to.
pub(crate) fn newest() -> u32 {
    MIGRATIONS.last().map_or(0, |step| step.version)
}
