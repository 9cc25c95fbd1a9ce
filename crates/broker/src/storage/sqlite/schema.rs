//! The tables of the broker.
//!
//! Every primary key begins with the mesh, so that a mesh can be moved, dropped or sharded as one
//! (DESIGN §12). Hot rows lie in order of arrival; a caller's own id, which may be random, is only in
//! the compact index of the dedupe table. The five tables of an accept have no foreign keys: the
//! accept transaction keeps them together and the orphan check watches it.

use heddle_sqlite::Migration;

pub(super) const MIGRATIONS: [Migration; 12] = [
    Migration {
        version: 1,
        name: "broker",
        sql: BROKER,
    },
    Migration {
        version: 2,
        name: "delivery_contract",
        sql: super::schema_v2::DELIVERY_CONTRACT,
    },
    Migration {
        version: 3,
        name: "log",
        sql: super::schema_v3::LOG,
    },
    Migration {
        version: 4,
        name: "members",
        sql: super::schema_members::MEMBERS,
    },
    Migration {
        version: 5,
        name: "snapshot",
        sql: super::snapshots::SCHEMA,
    },
    Migration {
        version: 6,
        name: "blocked",
        sql: super::schema_members::BLOCKED,
    },
    Migration {
        version: 7,
        name: "upload",
        sql: super::uploads::SCHEMA,
    },
    Migration {
        version: 8,
        name: "taken_at",
        sql: TAKEN_AT,
    },
    Migration {
        version: 9,
        name: "grants",
        sql: super::grants::SCHEMA,
    },
    Migration {
        version: 10,
        name: "ages",
        sql: super::ages::SCHEMA,
    },
    Migration {
        version: 11,
        name: "log_hole",
        sql: super::mend::SCHEMA,
    },
    Migration {
        version: 12,
        name: "left_out",
        sql: super::uploads::LEFT_OUT_SCHEMA,
    },
];

// For receipts. Null: nobody noted when the latest lease began.
const TAKEN_AT: &str = "ALTER TABLE queue_item ADD COLUMN taken_at INTEGER;";

const BROKER: &str = "
CREATE TABLE mesh (
    mesh_id BLOB NOT NULL PRIMARY KEY CHECK (length(mesh_id) = 16),
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    next_seq INTEGER NOT NULL CHECK (next_seq >= 1)
) STRICT, WITHOUT ROWID;

CREATE TABLE member (
    mesh_id BLOB NOT NULL REFERENCES mesh (mesh_id),
    member_id BLOB NOT NULL CHECK (length(member_id) = 16),
    name TEXT NOT NULL,
    -- The number of the member's latest connection.
    generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
    PRIMARY KEY (mesh_id, member_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (mesh_id, member_id, agent),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE topic (
    mesh_id BLOB NOT NULL REFERENCES mesh (mesh_id),
    topic TEXT NOT NULL,
    PRIMARY KEY (mesh_id, topic)
) STRICT, WITHOUT ROWID;

CREATE TABLE topic_subscription (
    mesh_id BLOB NOT NULL,
    topic TEXT NOT NULL,
    member_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (mesh_id, topic, member_id, agent),
    FOREIGN KEY (mesh_id, topic) REFERENCES topic (mesh_id, topic),
    FOREIGN KEY (mesh_id, member_id, agent) REFERENCES agent (mesh_id, member_id, agent)
) STRICT, WITHOUT ROWID;

-- With a rowid: the rows stay in order of arrival, the key is an index beside them. The expiry sweep
-- walks that order and needs no index of its own.
CREATE TABLE client_message_dedupe (
    mesh_id BLOB NOT NULL,
    -- IdKey: a digest over mesh, sender and id. The text columns decide, it only finds.
    id_key BLOB NOT NULL CHECK (length(id_key) = 24),
    sender_member BLOB NOT NULL,
    sender_agent TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    wire_fingerprint BLOB NOT NULL CHECK (length(wire_fingerprint) = 32),
    broker_message_id BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    destination_kind TEXT NOT NULL CHECK (destination_kind = 'topic' OR destination_kind = 'dm' OR destination_kind = 'queue'),
    destination_ref TEXT NOT NULL,
    first_seen_at INTEGER NOT NULL,
    -- Null: never.
    expires_at INTEGER,
    history_available INTEGER NOT NULL DEFAULT 1 CHECK (history_available IN (0, 1)),
    PRIMARY KEY (mesh_id, id_key)
) STRICT;

CREATE TABLE message (
    mesh_id BLOB NOT NULL,
    -- Minted by the broker, so it rises with time.
    broker_message_id BLOB NOT NULL CHECK (length(broker_message_id) = 16),
    sender_member BLOB NOT NULL,
    sender_agent TEXT NOT NULL,
    -- The sender's name at the time of the accept.
    sender_name TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    destination_kind TEXT NOT NULL CHECK (destination_kind = 'topic' OR destination_kind = 'dm' OR destination_kind = 'queue'),
    destination_ref TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    envelope TEXT NOT NULL,
    PRIMARY KEY (mesh_id, broker_message_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE message_history (
    mesh_id BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    broker_message_id BLOB NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq)
) STRICT, WITHOUT ROWID;

-- What waits is one stretch of the tree, in the order in which it is pushed; an ack moves a row out
-- of it. So a receiver with a long past costs no more than one with none.
CREATE TABLE delivery_queue (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    is_acked INTEGER NOT NULL CHECK (is_acked IN (0, 1)),
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    agent TEXT NOT NULL,
    broker_message_id BLOB NOT NULL,
    acked_at INTEGER CHECK ((acked_at IS NOT NULL) = is_acked),
    PRIMARY KEY (mesh_id, member_id, is_acked, epoch, seq, agent)
) STRICT, WITHOUT ROWID;

CREATE TABLE mention_index (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, member_id, agent, epoch, seq)
) STRICT, WITHOUT ROWID;
";
