-- Tasks (C7). `task_op` is the truth: every op of a task, also of one whose create has not come yet
-- (C38). All else here is folded from it by `core::task` and written anew whenever an op comes in.

CREATE TABLE task_op (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    task_id BLOB NOT NULL CHECK (length(task_id) = 16),
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    -- The op as it travels.
    body BLOB NOT NULL,
    PRIMARY KEY (mesh_id, task_id, op_id)
) STRICT, WITHOUT ROWID;

-- C9: an op counts once, whatever task it says it is about.
CREATE UNIQUE INDEX task_op_by_id ON task_op (mesh_id, op_id);

CREATE TABLE tasks (
    place INTEGER PRIMARY KEY,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    task_id BLOB NOT NULL CHECK (length(task_id) = 16),
    status TEXT NOT NULL CHECK (
        status = 'open' OR status = 'claimed' OR status = 'completed' OR status = 'cancelled'
    ),
    -- How many of those that block it are not finished, or not here yet. Of this home: derived.
    waits_for INTEGER NOT NULL DEFAULT 0 CHECK (waits_for >= 0),
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    claimed_by TEXT,
    claimed_at INTEGER,
    -- The number that completing and releasing check: the claim's lamport.
    fence INTEGER,
    lease_ms INTEGER,
    renewed INTEGER,
    renewed_at INTEGER,
    finished_by TEXT,
    finished_at INTEGER,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    CHECK ((status = 'claimed') = (claimed_by IS NOT NULL)),
    CHECK ((claimed_by IS NULL) = (fence IS NULL)),
    CHECK ((claimed_by IS NULL) = (lease_ms IS NULL)),
    CHECK ((status = 'completed' OR status = 'cancelled') = (finished_by IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX tasks_by_id ON tasks (mesh_id, task_id);
CREATE INDEX tasks_by_status ON tasks (mesh_id, status, task_id);
CREATE INDEX tasks_ready ON tasks (mesh_id, task_id) WHERE status = 'open' AND waits_for = 0;
CREATE INDEX tasks_claimed ON tasks (mesh_id, claimed_by) WHERE status = 'claimed';

CREATE TABLE task_blocker (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    task_id BLOB NOT NULL CHECK (length(task_id) = 16),
    blocked_by BLOB NOT NULL CHECK (length(blocked_by) = 16),
    PRIMARY KEY (mesh_id, task_id, blocked_by)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_blocker_back ON task_blocker (mesh_id, blocked_by, task_id);

CREATE TABLE task_claim_events (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    task_id BLOB NOT NULL CHECK (length(task_id) = 16),
    -- Its place in the task's record.
    number INTEGER NOT NULL,
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    peer TEXT NOT NULL,
    event_type TEXT NOT NULL CHECK (
        event_type = 'claimed' OR event_type = 'superseded' OR event_type = 'rejected_terminal'
        OR event_type = 'released' OR event_type = 'completed' OR event_type = 'cancelled'
    ),
    lamport INTEGER NOT NULL,
    -- The origin's clock, so the same on every replica.
    event_time INTEGER NOT NULL,
    fence INTEGER,
    conflict_peer TEXT,
    conflict_lamport INTEGER,
    PRIMARY KEY (mesh_id, task_id, number)
) STRICT, WITHOUT ROWID;

-- When this home saw a claim or its last renewal, on the machine's clock since its start (C18).
CREATE TABLE task_lease (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    task_id BLOB NOT NULL CHECK (length(task_id) = 16),
    renewed INTEGER NOT NULL,
    boot BLOB NOT NULL CHECK (length(boot) = 16),
    seen_ms INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, task_id)
) STRICT, WITHOUT ROWID;

-- What an agent of this home is to be told with its next answer, once (DESIGN §13.6). A told one stays,
-- so that it is not told again.
CREATE TABLE warning (
    place INTEGER PRIMARY KEY,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    agent TEXT NOT NULL,
    -- What it is about, and which loss of it.
    subject TEXT NOT NULL,
    cause INTEGER NOT NULL,
    body TEXT NOT NULL,
    shown_at INTEGER
) STRICT;

CREATE UNIQUE INDEX warning_once ON warning (mesh_id, subject, agent, cause);
CREATE INDEX warning_due ON warning (mesh_id, agent, place) WHERE shown_at IS NULL;
