-- Collecting tombstones of memory, state and vectors (LF-11), as `file_floor` does for files: the youngest
-- mark that was collected stands for all of them. An op that is not younger and finds no row is one whose
-- row is gone.
CREATE TABLE data_floor (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    noun TEXT NOT NULL CHECK (noun = 'memory' OR noun = 'state' OR noun = 'vector'),
    -- Whose ops it is for: a peer, or all peers of a member where every peer writes the same rows.
    scope TEXT NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    peer TEXT NOT NULL,
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    PRIMARY KEY (mesh_id, noun, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX memory_deleted ON memory (mesh_id, updated_at) WHERE tombstone = 1;
CREATE INDEX state_kv_deleted ON state_kv (mesh_id, updated_at) WHERE tombstone = 1;
CREATE INDEX vector_deleted ON vector_metadata (mesh_id, updated_at) WHERE tombstone = 1;
