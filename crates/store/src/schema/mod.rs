//! The schema as forward-only steps. A released step never changes; a change is a new file.

use heddle_sqlite::Migration;

pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "messages",
        sql: include_str!("v1_messages.sql"),
    },
    Migration {
        version: 2,
        name: "outbox_life",
        sql: include_str!("v2_outbox_life.sql"),
    },
    Migration {
        version: 3,
        name: "inbox",
        sql: include_str!("v3_inbox.sql"),
    },
    Migration {
        version: 4,
        name: "data",
        sql: include_str!("v4_data.sql"),
    },
    Migration {
        version: 5,
        name: "tasks",
        sql: include_str!("v5_tasks.sql"),
    },
    Migration {
        version: 6,
        name: "sync",
        sql: include_str!("v6_sync.sql"),
    },
    Migration {
        version: 7,
        name: "files",
        sql: include_str!("v7_files.sql"),
    },
    Migration {
        version: 8,
        name: "vectors",
        sql: include_str!("v8_vectors.sql"),
    },
    Migration {
        version: 9,
        name: "publish",
        sql: include_str!("v9_publish.sql"),
    },
    Migration {
        version: 10,
        name: "fetch",
        sql: include_str!("v10_fetch.sql"),
    },
    Migration {
        version: 11,
        name: "floor",
        sql: include_str!("v11_floor.sql"),
    },
    Migration {
        version: 12,
        name: "snapshot",
        sql: include_str!("v12_snapshot.sql"),
    },
    Migration {
        version: 13,
        name: "invite",
        sql: include_str!("v13_invite.sql"),
    },
];

/// The version that this program leads to.
pub(crate) fn newest() -> u32 {
    MIGRATIONS.last().map_or(0, |step| step.version)
}
