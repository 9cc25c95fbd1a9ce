-- The inbox grows up: receipts, sessions, search, what retention leaves behind, what hooks owe.

ALTER TABLE inbox ADD COLUMN shown_at INTEGER;

-- Marks of jobs. `indexed_through`: every item up to this arrival is in the search index.
-- `pruned_through`: the youngest arrival that retention ever took. `prune_cutoff`: up to which time
-- it went (core::inbox_retention). `hooks_through`: every item up to this arrival has been given to
-- the hooks; NULL while none were ever enabled.
CREATE TABLE inbox_state (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    indexed_through INTEGER NOT NULL DEFAULT 0,
    pruned_through INTEGER NOT NULL DEFAULT 0,
    prune_cutoff INTEGER,
    hooks_through INTEGER
) STRICT;
INSERT INTO inbox_state (only_row) VALUES (1);

-- Keeps no text of its own: a row is found here and read in `inbox`. Filled after the receive, in
-- chunks, so that a delivery never waits for its words to be sorted.
CREATE VIRTUAL TABLE inbox_fts USING fts5 (
    body, topic, sender,
    content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);

-- What is left of an item that retention took: its ids, for ever, so that a redelivery is known (IN-01).
CREATE TABLE inbox_past (
    agent TEXT NOT NULL,
    id_key BLOB NOT NULL CHECK (length(id_key) = 24),
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    history_epoch INTEGER NOT NULL,
    history_seq INTEGER NOT NULL,
    PRIMARY KEY (agent, id_key)
) STRICT, WITHOUT ROWID;

-- How far each session of an agent has read. Named by the session, so that it survives a restart.
CREATE TABLE inbox_session (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    agent TEXT NOT NULL,
    session TEXT NOT NULL,
    read_through INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, agent, session)
) STRICT, WITHOUT ROWID;

-- Receipts that the broker has not confirmed yet. A queue: confirmed rows are deleted.
CREATE TABLE inbox_receipt (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    agent TEXT NOT NULL,
    history_epoch INTEGER NOT NULL,
    history_seq INTEGER NOT NULL,
    level TEXT NOT NULL CHECK (level = 'shown' OR level = 'acked'),
    at INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, agent, history_epoch, history_seq, level)
) STRICT, WITHOUT ROWID;

-- C45: which hook owes a run for which item. Planned with the mark in one transaction, so an item is
-- planned once and its hooks run at least once.
CREATE TABLE inbox_hook (
    arrival INTEGER NOT NULL,
    hook TEXT NOT NULL,
    state TEXT NOT NULL CHECK (
        state = 'due' OR state = 'running' OR state = 'done' OR state = 'failed'
    ),
    attempts INTEGER NOT NULL DEFAULT 0,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (arrival, hook)
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_hook_open ON inbox_hook (arrival) WHERE state = 'due' OR state = 'running';
