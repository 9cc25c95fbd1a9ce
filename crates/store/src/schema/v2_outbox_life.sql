-- The life of an outbox row after its accept: its attempts and its age. Nothing here is written by an
-- accept, nor by a transmission that succeeds at once.

-- Attempts that did not succeed at once: the first few and the last few of each row.
CREATE TABLE outbox_attempt (
    row_id BLOB NOT NULL CHECK (length(row_id) = 16),
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (row_id, number)
) STRICT, WITHOUT ROWID;

-- The age clock of this home (core/age): time that certainly passed, whatever the wall clock says.
CREATE TABLE age_clock (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    age_ms INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL,
    boot_id BLOB CHECK (boot_id IS NULL OR length(boot_id) = 16),
    boot_ms INTEGER
) STRICT;

-- When rows were born: all up to `arrival_max` existed when the age clock showed `age_ms`.
CREATE TABLE outbox_birth (
    arrival_max INTEGER PRIMARY KEY,
    age_ms INTEGER NOT NULL
) STRICT;

-- What was last agreed with the mesh's broker, so that it is known while the broker is away.
CREATE TABLE mesh_window (
    mesh_id BLOB PRIMARY KEY CHECK (length(mesh_id) = 16),
    max_age_hours INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
