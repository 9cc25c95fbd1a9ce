-- Vectors. Each model has a `vec0` table of its own, made when its first vector comes: `vectors_` and
-- the model's fingerprint (LF-31). What belongs to a vector stands here, under the number that its row
-- has there; a live row here has exactly one there, a tombstone none (LF-32).

-- `created_at`, `left_at` and `read_at` are this home's own.
CREATE TABLE vector_models (
    id TEXT PRIMARY KEY CHECK (length(id) = 16),
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    model_version TEXT NOT NULL,
    dim INTEGER NOT NULL CHECK (dim >= 1),
    quantization TEXT NOT NULL,
    vec_table TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- Since when its vectors are being moved to another model, and when somebody last searched them.
    left_at INTEGER,
    read_at INTEGER
) STRICT, WITHOUT ROWID;

-- `place`, `created_at` and `changed` are this home's own. The content stands last, so that reading
-- the other columns never touches its pages.
CREATE TABLE vector_metadata (
    place INTEGER PRIMARY KEY,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    peer TEXT NOT NULL,
    key TEXT NOT NULL,
    model_id TEXT NOT NULL CHECK (length(model_id) = 16),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    incarnation INTEGER NOT NULL,
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    tombstone INTEGER NOT NULL CHECK (tombstone = 0 OR tombstone = 1),
    -- The number of the change in `vector_head` that wrote this row.
    changed INTEGER NOT NULL,
    metadata TEXT,
    content TEXT,
    CHECK ((tombstone = 1) = (content IS NULL)),
    CHECK ((tombstone = 1) = (metadata IS NULL))
) STRICT;

CREATE UNIQUE INDEX vector_by_key ON vector_metadata (mesh_id, key, peer, model_id);
CREATE INDEX vector_by_change ON vector_metadata (mesh_id, model_id, changed);

-- How often the vectors of a mesh and a model changed: what is in memory follows it. What was read
-- before `whole_from` must be read anew as a whole.
CREATE TABLE vector_head (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    model_id TEXT NOT NULL,
    changes INTEGER NOT NULL,
    whole_from INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (mesh_id, model_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER vector_is_tombstoned_first BEFORE DELETE ON vector_metadata WHEN old.tombstone = 0 BEGIN
    SELECT RAISE(ABORT, 'a vector leaves a tombstone; only that may be deleted');
END;

CREATE TRIGGER vector_tombstone_is_gone AFTER DELETE ON vector_metadata BEGIN
    UPDATE vector_head SET changes = changes + 1, whole_from = changes + 1
        WHERE mesh_id = old.mesh_id AND model_id = old.model_id;
END;
