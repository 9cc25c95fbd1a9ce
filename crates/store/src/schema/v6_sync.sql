-- Sync: what a mesh is to this home, how far its log was read, ops on their way out and in.

ALTER TABLE mesh ADD COLUMN kind TEXT NOT NULL DEFAULT 'personal'
    CHECK (kind = 'personal' OR kind = 'shared_owner' OR kind = 'shared_guest');
UPDATE mesh SET kind = 'shared_guest' WHERE broker_url IS NOT NULL;
-- The epoch of the broker's history; it never falls.
ALTER TABLE mesh ADD COLUMN broker_epoch INTEGER NOT NULL DEFAULT 0;
-- Up to which epoch it was looked for ops that the broker has lost.
ALTER TABLE mesh ADD COLUMN replayed_epoch INTEGER NOT NULL DEFAULT 0;
-- Set when one op was refused too often; cleared by hand.
ALTER TABLE mesh ADD COLUMN sync_paused INTEGER NOT NULL DEFAULT 0
    CHECK (sync_paused = 0 OR sync_paused = 1);
-- How far the log was received.
ALTER TABLE mesh ADD COLUMN log_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mesh ADD COLUMN log_seq INTEGER NOT NULL DEFAULT 0;
-- An op was missed, and reading the log from its beginning did not bring it.
ALTER TABLE mesh ADD COLUMN needs_resync INTEGER NOT NULL DEFAULT 0
    CHECK (needs_resync = 0 OR needs_resync = 1);
ALTER TABLE mesh ADD COLUMN last_sync_at INTEGER;

-- Ops that the broker has not confirmed: the outbox rows of kind `op` that wait, in their order. Their
-- own due time is out of reach for the drain of messages, so neither looks at the other's rows.
CREATE TABLE op_outbox (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    arrival INTEGER NOT NULL,
    -- After a refusal: when to try again, on the monotonic clock of the process that runs.
    due_mono_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (mesh_id, arrival)
) STRICT, WITHOUT ROWID;

-- Ops as they came from the log. A row stays for ever, so that an op which comes again, under its old
-- place or under a new one (C9), is known; its bytes go once it was applied.
CREATE TABLE op_inbox (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    seq INTEGER NOT NULL CHECK (seq >= 0),
    -- MEMBER_ID/agent, as the broker has proven it.
    sender TEXT NOT NULL,
    op_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (
        state = 'waiting' OR state = 'applied' OR state = 'parked' OR state = 'quarantined'
        OR state = 'dropped'
    ),
    -- Why it was set aside.
    reason TEXT,
    received_at INTEGER NOT NULL,
    applied_at INTEGER,
    op BLOB NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq),
    CHECK ((state = 'applied') = (applied_at IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX op_inbox_by_id ON op_inbox (mesh_id, sender, op_id);
CREATE INDEX op_inbox_open ON op_inbox (mesh_id, state, epoch, seq) WHERE state <> 'applied';
