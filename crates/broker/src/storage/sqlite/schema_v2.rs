//! Migration 2: priorities and receipts, work queues, sessions, upkeep.

pub(super) const DELIVERY_CONTRACT: &str = "
-- Lease time: the newest that a write was handed. It goes on from here after a restart.
ALTER TABLE mesh ADD COLUMN lease_ms INTEGER NOT NULL DEFAULT 0 CHECK (lease_ms >= 0);

-- When the member's last session ended. Null: never here, or before this was kept.
ALTER TABLE member ADD COLUMN seen_at INTEGER;

CREATE TABLE member_session (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    generation INTEGER NOT NULL CHECK (generation >= 1),
    since INTEGER NOT NULL,
    leased_until INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, member_id, generation),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
) STRICT, WITHOUT ROWID;

-- What the limiter said. Telemetry: nothing decides by it.
ALTER TABLE client_message_dedupe ADD COLUMN limiter_window INTEGER;
ALTER TABLE client_message_dedupe ADD COLUMN limiter_counted INTEGER;

-- Set when the dedupe row of this place was swept.
ALTER TABLE message_history ADD COLUMN is_expired INTEGER NOT NULL DEFAULT 0
    CHECK (is_expired = 0 OR is_expired = 1);

-- What waits is one stretch of the tree for each priority, in the order in which it is pushed.
CREATE TABLE delivery_queue_2 (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    is_delivered INTEGER NOT NULL CHECK (is_delivered = 0 OR is_delivered = 1),
    -- 0 now, 1 next, 2 low.
    priority INTEGER NOT NULL CHECK (priority >= 0 AND priority <= 2),
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    agent TEXT NOT NULL,
    broker_message_id BLOB NOT NULL,
    delivered_at INTEGER CHECK ((delivered_at IS NOT NULL) = is_delivered),
    shown_at INTEGER CHECK (shown_at IS NULL OR is_delivered = 1),
    acked_at INTEGER CHECK (acked_at IS NULL OR shown_at IS NOT NULL),
    PRIMARY KEY (mesh_id, member_id, is_delivered, priority, epoch, seq, agent)
) STRICT, WITHOUT ROWID;

INSERT INTO delivery_queue_2 (mesh_id, member_id, is_delivered, priority, epoch, seq, agent,
    broker_message_id, delivered_at)
SELECT q.mesh_id, q.member_id, q.is_acked,
    CASE WHEN json_valid(m.envelope) THEN
        CASE json_extract(m.envelope, '$.priority') WHEN 'now' THEN 0 WHEN 'low' THEN 2 ELSE 1 END
    ELSE 1 END,
    q.epoch, q.seq, q.agent, q.broker_message_id, q.acked_at
FROM delivery_queue q
LEFT JOIN message m ON m.mesh_id = q.mesh_id AND m.broker_message_id = q.broker_message_id;

DROP TABLE delivery_queue;
ALTER TABLE delivery_queue_2 RENAME TO delivery_queue;

CREATE TABLE queue (
    mesh_id BLOB NOT NULL REFERENCES mesh (mesh_id),
    queue TEXT NOT NULL,
    -- The number of the latest lease; it only rises.
    fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    PRIMARY KEY (mesh_id, queue)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue_item (
    mesh_id BLOB NOT NULL,
    queue TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    priority INTEGER NOT NULL CHECK (priority >= 0 AND priority <= 2),
    broker_message_id BLOB NOT NULL,
    -- Of the latest lease; 0 before the first.
    fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    delivery_count INTEGER NOT NULL DEFAULT 0 CHECK (delivery_count >= 0),
    holder_member BLOB,
    holder_agent TEXT,
    -- Null: nobody has it.
    leased_until INTEGER,
    acked_at INTEGER,
    PRIMARY KEY (mesh_id, queue, epoch, seq),
    CHECK (acked_at IS NULL OR leased_until IS NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX queue_item_open ON queue_item (mesh_id, queue, priority, epoch, seq)
WHERE acked_at IS NULL;

-- One of N brokers does a job.
CREATE TABLE job_claim (
    mesh_id BLOB NOT NULL,
    job TEXT NOT NULL,
    holder TEXT NOT NULL,
    claimed_until INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, job)
) STRICT, WITHOUT ROWID;

-- Telemetry, made from the history; nothing decides by it (RL-10).
CREATE TABLE rate_limit_counter (
    mesh_id BLOB NOT NULL,
    hour INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, hour)
) STRICT, WITHOUT ROWID;

CREATE TABLE rate_limit_counted (
    mesh_id BLOB NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";
