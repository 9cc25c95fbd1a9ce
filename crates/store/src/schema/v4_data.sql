-- The data of a mesh: logical time, memory, state, and the gate of every change to them.
--
-- Rows keep the stamp of the op that made them (C8): `lamport`, the writer, `op_id`; `incarnation`
-- tells the counters of a restored file from those before it (C39). `created_at` and `place` are this
-- home's own; everything else in a row is the same on every replica.

CREATE TABLE lamport_clock (
    mesh_id BLOB PRIMARY KEY CHECK (length(mesh_id) = 16),
    -- A sum beyond 2^63 would become a float; it fails here instead (LF-06).
    value INTEGER NOT NULL CHECK (typeof(value) = 'integer' AND value >= 0),
    incarnation INTEGER NOT NULL DEFAULT 1 CHECK (incarnation >= 1)
) STRICT, WITHOUT ROWID;

-- A peer's own notes. `peer` is MEMBER_ID/agent: the owner, and the only one who writes it.
-- The value stands last, so that reading the other columns never touches its pages.
CREATE TABLE memory (
    place INTEGER PRIMARY KEY,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    peer TEXT NOT NULL,
    key TEXT NOT NULL,
    tags TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    incarnation INTEGER NOT NULL,
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    -- A forgotten memory leaves its key and its stamp behind, so that an older op cannot bring it back.
    tombstone INTEGER NOT NULL CHECK (tombstone = 0 OR tombstone = 1),
    value TEXT,
    CHECK ((tombstone = 1) = (value IS NULL))
) STRICT;

CREATE UNIQUE INDEX memory_by_key ON memory (mesh_id, key, peer);

-- Shared by all peers of a mesh; `updated_by` is the writer.
CREATE TABLE state_kv (
    place INTEGER PRIMARY KEY,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    key TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    incarnation INTEGER NOT NULL,
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    tombstone INTEGER NOT NULL CHECK (tombstone = 0 OR tombstone = 1),
    value TEXT,
    CHECK ((tombstone = 1) = (value IS NULL))
) STRICT;

CREATE UNIQUE INDEX state_kv_by_key ON state_kv (mesh_id, key);

-- The gate: an idempotency key, the request that consumed it, and the answer that was given. Never
-- deleted: a key once consumed is never free again.
CREATE TABLE applied_request (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    agent TEXT NOT NULL,
    request_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    applied_at INTEGER NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (mesh_id, agent, request_key)
) STRICT, WITHOUT ROWID;

-- What is to be found of a memory: its key, its tags, and every text and number in its value.
CREATE VIEW memory_words AS
    SELECT place, key, tags, (
        SELECT group_concat(word, ' ') FROM (
            SELECT atom AS word FROM json_tree(memory.value)
            WHERE type = 'text' OR type = 'integer' OR type = 'real'
            UNION ALL
            SELECT json_tree.key AS word FROM json_tree(memory.value)
            WHERE typeof(json_tree.key) = 'text'
        )
    ) AS words
    FROM memory WHERE tombstone = 0;

CREATE VIRTUAL TABLE memory_fts USING fts5 (
    key, words, tags,
    content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TRIGGER memory_is_written AFTER INSERT ON memory BEGIN
    INSERT INTO memory_fts (rowid, key, words, tags)
        SELECT place, key, words, tags FROM memory_words WHERE place = new.place;
END;

CREATE TRIGGER memory_is_changed AFTER UPDATE ON memory BEGIN
    DELETE FROM memory_fts WHERE rowid = old.place;
    INSERT INTO memory_fts (rowid, key, words, tags)
        SELECT place, key, words, tags FROM memory_words WHERE place = new.place;
END;

CREATE TRIGGER memory_is_gone AFTER DELETE ON memory BEGIN
    DELETE FROM memory_fts WHERE rowid = old.place;
END;
