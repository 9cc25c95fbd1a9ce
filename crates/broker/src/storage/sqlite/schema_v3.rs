//! Migration 3: the log. The two tables that name a kind of destination are made anew, because their
//! CHECK must let the log in.

pub(super) const LOG: &str = "
CREATE TABLE client_message_dedupe_3 (
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
    destination_kind TEXT NOT NULL CHECK (destination_kind = 'topic' OR destination_kind = 'dm'
        OR destination_kind = 'queue' OR destination_kind = 'log'),
    destination_ref TEXT NOT NULL,
    first_seen_at INTEGER NOT NULL,
    -- Null: never.
    expires_at INTEGER,
    history_available INTEGER NOT NULL DEFAULT 1 CHECK (history_available IN (0, 1)),
    limiter_window INTEGER,
    limiter_counted INTEGER,
    PRIMARY KEY (mesh_id, id_key)
) STRICT;

INSERT INTO client_message_dedupe_3 (rowid, mesh_id, id_key, sender_member, sender_agent,
    client_message_id, wire_fingerprint, broker_message_id, epoch, seq, destination_kind,
    destination_ref, first_seen_at, expires_at, history_available, limiter_window, limiter_counted)
SELECT rowid, mesh_id, id_key, sender_member, sender_agent, client_message_id, wire_fingerprint,
    broker_message_id, epoch, seq, destination_kind, destination_ref, first_seen_at, expires_at,
    history_available, limiter_window, limiter_counted
FROM client_message_dedupe ORDER BY rowid;

DROP TABLE client_message_dedupe;
ALTER TABLE client_message_dedupe_3 RENAME TO client_message_dedupe;

CREATE TABLE message_3 (
    mesh_id BLOB NOT NULL,
    -- Minted by the broker, so it rises with time.
    broker_message_id BLOB NOT NULL CHECK (length(broker_message_id) = 16),
    sender_member BLOB NOT NULL,
    sender_agent TEXT NOT NULL,
    -- The sender's name at the time of the accept.
    sender_name TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    destination_kind TEXT NOT NULL CHECK (destination_kind = 'topic' OR destination_kind = 'dm'
        OR destination_kind = 'queue' OR destination_kind = 'log'),
    destination_ref TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    envelope TEXT NOT NULL,
    PRIMARY KEY (mesh_id, broker_message_id)
) STRICT, WITHOUT ROWID;

INSERT INTO message_3 (mesh_id, broker_message_id, sender_member, sender_agent, sender_name,
    client_message_id, destination_kind, destination_ref, accepted_at, envelope)
SELECT mesh_id, broker_message_id, sender_member, sender_agent, sender_name, client_message_id,
    destination_kind, destination_ref, accepted_at, envelope
FROM message;

DROP TABLE message;
ALTER TABLE message_3 RENAME TO message;

-- The ops of a mesh, each with the one before it: that tells a hole, which a message fills, from a gap.
CREATE TABLE log_row (
    mesh_id BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    previous_epoch INTEGER NOT NULL,
    previous_seq INTEGER NOT NULL,
    broker_message_id BLOB NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq)
) STRICT, WITHOUT ROWID;
";
