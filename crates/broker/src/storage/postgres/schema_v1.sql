-- The tables of the broker on PostgreSQL. Every primary key begins with the mesh, so that a mesh can be moved,
-- dropped or sharded as one (DESIGN §12). Text that is sorted or compared is in byte order, whatever the database's
-- own language is. The tables of an accept have no foreign keys: the accept transaction keeps them together and the
-- orphan check watches it.

-- The two tables that are of no mesh: this one, and the list of migrations. A challenge goes out before anybody has
-- named a mesh.
CREATE TABLE broker (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    broker_id BYTEA NOT NULL CHECK (octet_length(broker_id) = 16)
);

-- One row a mesh, and the line that its writers stand in: whoever writes holds its lock until the commit. Half of
-- each page is kept free, because the row is written anew by every commit.
CREATE TABLE mesh (
    mesh_id BYTEA NOT NULL PRIMARY KEY CHECK (octet_length(mesh_id) = 16),
    name TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL CHECK (epoch >= 1),
    next_seq BIGINT NOT NULL CHECK (next_seq >= 1),
    lease_ms BIGINT NOT NULL DEFAULT 0 CHECK (lease_ms >= 0)
) WITH (fillfactor = 50);

CREATE TABLE member (
    mesh_id BYTEA NOT NULL REFERENCES mesh (mesh_id),
    member_id BYTEA NOT NULL CHECK (octet_length(member_id) = 16),
    name TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL DEFAULT 0 CHECK (generation >= 0),
    seen_at BIGINT,
    PRIMARY KEY (mesh_id, member_id)
);

CREATE TABLE member_session (
    mesh_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    generation BIGINT NOT NULL CHECK (generation >= 1),
    since BIGINT NOT NULL,
    leased_until BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, member_id, generation),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
);

CREATE TABLE agent (
    mesh_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (mesh_id, member_id, agent),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
);

CREATE TABLE topic (
    mesh_id BYTEA NOT NULL REFERENCES mesh (mesh_id),
    topic TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (mesh_id, topic)
);

CREATE TABLE topic_subscription (
    mesh_id BYTEA NOT NULL,
    topic TEXT COLLATE "C" NOT NULL,
    member_id BYTEA NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (mesh_id, topic, member_id, agent),
    FOREIGN KEY (mesh_id, topic) REFERENCES topic (mesh_id, topic),
    FOREIGN KEY (mesh_id, member_id, agent) REFERENCES agent (mesh_id, member_id, agent)
);

CREATE TABLE client_message_dedupe (
    mesh_id BYTEA NOT NULL,
    -- IdKey: a digest over mesh, sender and id. The text columns decide, it only finds.
    id_key BYTEA NOT NULL CHECK (octet_length(id_key) = 24),
    sender_member BYTEA NOT NULL,
    sender_agent TEXT COLLATE "C" NOT NULL,
    client_message_id TEXT COLLATE "C" NOT NULL,
    wire_fingerprint BYTEA NOT NULL CHECK (octet_length(wire_fingerprint) = 32),
    broker_message_id BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    destination_kind TEXT NOT NULL CHECK (destination_kind = 'topic' OR destination_kind = 'dm'
        OR destination_kind = 'queue' OR destination_kind = 'log'),
    destination_ref TEXT COLLATE "C" NOT NULL,
    first_seen_at BIGINT NOT NULL,
    -- Null: never.
    expires_at BIGINT,
    history_available BOOLEAN NOT NULL DEFAULT TRUE,
    -- What the limiter said. Telemetry: nothing decides by it.
    limiter_window BIGINT,
    limiter_counted BIGINT,
    PRIMARY KEY (mesh_id, id_key)
);

-- In order of time, so it grows at its end only.
CREATE INDEX client_message_dedupe_due ON client_message_dedupe (mesh_id, expires_at)
WHERE expires_at IS NOT NULL;

CREATE TABLE message (
    mesh_id BYTEA NOT NULL,
    broker_message_id BYTEA NOT NULL CHECK (octet_length(broker_message_id) = 16),
    sender_member BYTEA NOT NULL,
    sender_agent TEXT COLLATE "C" NOT NULL,
    -- The sender's name at the time of the accept.
    sender_name TEXT COLLATE "C" NOT NULL,
    client_message_id TEXT COLLATE "C" NOT NULL,
    destination_kind TEXT NOT NULL CHECK (destination_kind = 'topic' OR destination_kind = 'dm'
        OR destination_kind = 'queue' OR destination_kind = 'log'),
    destination_ref TEXT COLLATE "C" NOT NULL,
    accepted_at BIGINT NOT NULL,
    envelope TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (mesh_id, broker_message_id)
);

CREATE TABLE message_history (
    mesh_id BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    broker_message_id BYTEA NOT NULL,
    -- Set when the dedupe row of this place was swept.
    is_expired BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (mesh_id, epoch, seq)
);

CREATE TABLE log_row (
    mesh_id BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    previous_epoch BIGINT NOT NULL,
    previous_seq BIGINT NOT NULL,
    broker_message_id BYTEA NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq)
);

CREATE TABLE delivery_queue (
    mesh_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    -- 0 now, 1 next, 2 low.
    priority SMALLINT NOT NULL CHECK (priority >= 0 AND priority <= 2),
    broker_message_id BYTEA NOT NULL,
    delivered_at BIGINT,
    shown_at BIGINT CHECK (shown_at IS NULL OR delivered_at IS NOT NULL),
    acked_at BIGINT CHECK (acked_at IS NULL OR shown_at IS NOT NULL),
    PRIMARY KEY (mesh_id, member_id, epoch, seq, agent)
);

-- What waits, in the order in which it is pushed. A receiver with a long past costs no more than one with none.
CREATE INDEX delivery_queue_waiting ON delivery_queue (mesh_id, member_id, priority, epoch, seq, agent)
WHERE delivered_at IS NULL;

CREATE TABLE queue (
    mesh_id BYTEA NOT NULL REFERENCES mesh (mesh_id),
    queue TEXT COLLATE "C" NOT NULL,
    -- The number of the latest lease; it only rises.
    fence BIGINT NOT NULL DEFAULT 0 CHECK (fence >= 0),
    PRIMARY KEY (mesh_id, queue)
);

CREATE TABLE queue_item (
    mesh_id BYTEA NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    priority SMALLINT NOT NULL CHECK (priority >= 0 AND priority <= 2),
    broker_message_id BYTEA NOT NULL,
    -- Of the latest lease; 0 before the first.
    fence BIGINT NOT NULL DEFAULT 0 CHECK (fence >= 0),
    delivery_count BIGINT NOT NULL DEFAULT 0 CHECK (delivery_count >= 0),
    holder_member BYTEA,
    holder_agent TEXT COLLATE "C",
    -- Null: nobody has it.
    leased_until BIGINT,
    acked_at BIGINT,
    PRIMARY KEY (mesh_id, queue, epoch, seq),
    CHECK (acked_at IS NULL OR leased_until IS NULL)
);

CREATE INDEX queue_item_open ON queue_item (mesh_id, queue, priority, epoch, seq)
WHERE acked_at IS NULL;

CREATE TABLE mention_index (
    mesh_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, member_id, agent, epoch, seq)
);

-- One of N brokers does a job.
CREATE TABLE job_claim (
    mesh_id BYTEA NOT NULL,
    job TEXT NOT NULL,
    holder TEXT NOT NULL,
    claimed_until BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, job)
);

-- Telemetry, made from the history; nothing decides by it (RL-10).
CREATE TABLE rate_limit_counter (
    mesh_id BYTEA NOT NULL,
    hour BIGINT NOT NULL,
    accepted BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, hour)
);

CREATE TABLE rate_limit_counted (
    mesh_id BYTEA NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL
);

CREATE TABLE member_standing (
    mesh_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    role TEXT NOT NULL CHECK (role = 'owner' OR role = 'member'),
    enrolled_at BIGINT NOT NULL,
    -- Null: the owner of the store.
    invite_id BYTEA,
    revoked_at BIGINT,
    PRIMARY KEY (mesh_id, member_id),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
);

-- A key is one member's for ever; a member has one at a time.
CREATE TABLE member_key (
    mesh_id BYTEA NOT NULL,
    public_key BYTEA NOT NULL CHECK (octet_length(public_key) = 32),
    member_id BYTEA NOT NULL,
    added_at BIGINT NOT NULL,
    retired_at BIGINT,
    PRIMARY KEY (mesh_id, public_key),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member_standing (mesh_id, member_id)
);

CREATE UNIQUE INDEX member_key_current ON member_key (mesh_id, member_id) WHERE retired_at IS NULL;

CREATE TABLE invite (
    mesh_id BYTEA NOT NULL REFERENCES mesh (mesh_id),
    invite_id BYTEA NOT NULL CHECK (octet_length(invite_id) = 16),
    -- Of the whole link, which is not kept.
    digest BYTEA NOT NULL CHECK (octet_length(digest) = 32),
    inviter BYTEA NOT NULL,
    role TEXT NOT NULL CHECK (role = 'owner' OR role = 'member'),
    uses_max BIGINT NOT NULL CHECK (uses_max >= 1),
    used BIGINT NOT NULL DEFAULT 0 CHECK (used >= 0 AND used <= uses_max),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, invite_id)
);
