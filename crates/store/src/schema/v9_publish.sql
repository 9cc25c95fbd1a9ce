-- Publishing: a mesh that had nobody else becomes a shared one, and its rows of before become ops (C21).

CREATE TABLE mesh_publish (
    mesh_id BLOB PRIMARY KEY CHECK (length(mesh_id) = 16),
    -- The clock when it began. What is stamped later is an op by itself.
    through_lamport INTEGER NOT NULL CHECK (through_lamport >= 0),
    rows_total INTEGER NOT NULL CHECK (rows_total >= 0),
    -- Looked at so far, each in the transaction that made it an op.
    rows_done INTEGER NOT NULL DEFAULT 0 CHECK (rows_done >= 0),
    started_at INTEGER NOT NULL,
    -- Set in the transaction of the last row.
    finished_at INTEGER
) STRICT, WITHOUT ROWID;

-- How far each table was gone through: the key of its last row, as that table's reader writes it.
CREATE TABLE mesh_publish_cursor (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    table_name TEXT NOT NULL,
    through BLOB NOT NULL,
    is_done INTEGER NOT NULL DEFAULT 0 CHECK (is_done = 0 OR is_done = 1),
    PRIMARY KEY (mesh_id, table_name)
) STRICT, WITHOUT ROWID;
