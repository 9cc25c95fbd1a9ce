-- Meshes, agents, outbox and inbox. Ids that are ULIDs are 16-byte blobs, times are milliseconds.

CREATE TABLE store_state (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    clean INTEGER NOT NULL CHECK (clean IN (0, 1))
) STRICT;
INSERT INTO store_state (only_row, clean) VALUES (1, 0);

CREATE TABLE mesh (
    mesh_id BLOB PRIMARY KEY CHECK (length(mesh_id) = 16),
    name TEXT NOT NULL UNIQUE,
    member_id BLOB NOT NULL CHECK (length(member_id) = 16),
    member_name TEXT NOT NULL,
    broker_url TEXT,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE agent (
    mesh_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    registered_at INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, agent)
) STRICT, WITHOUT ROWID;

CREATE TABLE roster (
    mesh_id BLOB PRIMARY KEY,
    document TEXT NOT NULL,
    as_of INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The outbox ----------------------------------------------------------------------------------

-- Rows stay in order of arrival and are never deleted, so `arrival` has no gaps: `figures` counts
-- on it. The payload stands last, so that reading the other columns never touches its pages.
CREATE TABLE outbox (
    arrival INTEGER PRIMARY KEY,
    row_id BLOB NOT NULL UNIQUE CHECK (length(row_id) = 16),
    id_key BLOB NOT NULL UNIQUE CHECK (length(id_key) = 24),
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    member_id BLOB NOT NULL CHECK (length(member_id) = 16),
    agent TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    request_fingerprint BLOB NOT NULL CHECK (length(request_fingerprint) = 32),
    wire_fingerprint BLOB NOT NULL CHECK (length(wire_fingerprint) = 32),
    -- OR and not IN, here and below: SQLite builds a table for every list that it is asked about.
    status TEXT NOT NULL CHECK (
        status = 'pending' OR status = 'inflight' OR status = 'done' OR status = 'dead'
        OR status = 'aborted'
    ),
    attempts INTEGER NOT NULL DEFAULT 0,
    -- When to try again, on the monotonic clock of the process that runs (C18).
    due_mono_ms INTEGER NOT NULL DEFAULT 0,
    kind TEXT NOT NULL,
    to_address TEXT NOT NULL,
    mentions TEXT NOT NULL,
    priority TEXT NOT NULL,
    enqueued_at INTEGER NOT NULL,
    last_error TEXT,
    delivered_at INTEGER,
    broker_message_id BLOB,
    history_epoch INTEGER,
    history_seq INTEGER,
    aborted_at INTEGER,
    aborted_by TEXT,
    superseded_by BLOB,
    payload BLOB NOT NULL
) STRICT;

-- The row number is the last part of every index, so both of these end in order of arrival.
CREATE INDEX outbox_due ON outbox (mesh_id, due_mono_ms) WHERE status = 'pending';
-- Only with OR does the planner see that `status = 'dead'` implies it.
CREATE INDEX outbox_exceptional ON outbox (status)
    WHERE status = 'inflight' OR status = 'dead' OR status = 'aborted';
CREATE UNIQUE INDEX outbox_predecessor ON outbox (superseded_by) WHERE superseded_by IS NOT NULL;

-- Who ever sent: a look-up by client id alone tries the key of each of them, which spares the hot
-- path an index over the callers' ids.
CREATE TABLE outbox_sender (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (mesh_id, member_id, agent)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER outbox_begins_pending BEFORE INSERT ON outbox
WHEN NEW.status <> 'pending'
BEGIN
    SELECT RAISE(ABORT, 'an outbox row begins as pending');
END;

-- OB-09. Says the same as OutboxStatus::may_become; a test compares all pairs.
CREATE TRIGGER outbox_moves BEFORE UPDATE OF status ON outbox
WHEN NOT (
    (OLD.status = 'pending'
        AND (NEW.status = 'inflight' OR NEW.status = 'dead' OR NEW.status = 'aborted'))
    OR (OLD.status = 'inflight'
        AND (NEW.status = 'pending' OR NEW.status = 'done' OR NEW.status = 'dead'))
    OR (OLD.status = 'dead' AND NEW.status = 'aborted')
)
BEGIN
    SELECT RAISE(ABORT, 'an outbox row may not move like this');
END;

-- OB-07. A payload may be emptied by prune, nothing else.
CREATE TRIGGER outbox_frozen BEFORE UPDATE OF arrival, row_id, id_key, mesh_id, member_id, agent,
    client_message_id, request_fingerprint, wire_fingerprint, kind, to_address, mentions, priority,
    enqueued_at, payload ON outbox
WHEN NEW.arrival <> OLD.arrival
    OR NEW.row_id <> OLD.row_id
    OR NEW.id_key <> OLD.id_key
    OR NEW.mesh_id <> OLD.mesh_id
    OR NEW.member_id <> OLD.member_id
    OR NEW.agent <> OLD.agent
    OR NEW.client_message_id <> OLD.client_message_id
    OR NEW.request_fingerprint <> OLD.request_fingerprint
    OR NEW.wire_fingerprint <> OLD.wire_fingerprint
    OR NEW.kind <> OLD.kind
    OR NEW.to_address <> OLD.to_address
    OR NEW.mentions <> OLD.mentions
    OR NEW.priority <> OLD.priority
    OR NEW.enqueued_at <> OLD.enqueued_at
    OR (NEW.payload <> OLD.payload AND length(NEW.payload) > 0)
BEGIN
    SELECT RAISE(ABORT, 'what an outbox row was accepted with never changes');
END;

-- DR-13. A successor exists, is younger and is named once, so a chain cannot close.
CREATE TRIGGER outbox_successor BEFORE UPDATE OF superseded_by ON outbox
WHEN OLD.superseded_by IS NOT NULL
    OR NOT EXISTS (
        SELECT 1 FROM outbox AS next
        WHERE next.row_id = NEW.superseded_by AND next.arrival > OLD.arrival
    )
BEGIN
    SELECT RAISE(ABORT, 'an outbox row has one successor, which is younger');
END;

-- OB-10.
CREATE TRIGGER outbox_stays BEFORE DELETE ON outbox
BEGIN
    SELECT RAISE(ABORT, 'an outbox row is never deleted');
END;

-- The inbox -----------------------------------------------------------------------------------

-- `arrival` is the event id that readers resume from: never reused, whatever is deleted.
CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY AUTOINCREMENT,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    agent TEXT NOT NULL,
    history_epoch INTEGER NOT NULL,
    history_seq INTEGER NOT NULL,
    id_key BLOB NOT NULL CHECK (length(id_key) = 24),
    member_id BLOB NOT NULL CHECK (length(member_id) = 16),
    sender_agent TEXT NOT NULL,
    sender_name TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    broker_message_id BLOB NOT NULL CHECK (length(broker_message_id) = 16),
    topic TEXT,
    priority TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    acked_at INTEGER,
    envelope BLOB NOT NULL,
    UNIQUE (mesh_id, agent, history_epoch, history_seq),
    UNIQUE (agent, id_key)
) STRICT;

CREATE INDEX inbox_mailbox ON inbox (mesh_id, agent);
CREATE INDEX inbox_unread ON inbox (mesh_id, agent) WHERE acked_at IS NULL;

-- How far each mesh's history has been received, and how many items that gave.
CREATE TABLE delivery (
    mesh_id BLOB PRIMARY KEY,
    history_epoch INTEGER NOT NULL,
    history_seq INTEGER NOT NULL,
    item_count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
