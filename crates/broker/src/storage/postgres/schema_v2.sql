-- The snapshot of a mesh that is being published: what lies behind its place is hidden from all but its
-- publisher while it is open (LF-34).
CREATE TABLE log_snapshot (
    mesh_id BYTEA NOT NULL PRIMARY KEY REFERENCES mesh (mesh_id),
    snapshot_id TEXT COLLATE "C" NOT NULL,
    member_id BYTEA NOT NULL CHECK (octet_length(member_id) = 16),
    -- The last place that everybody may read while it is open.
    behind_epoch BIGINT NOT NULL,
    behind_seq BIGINT NOT NULL CHECK (behind_seq >= 0),
    is_open BOOLEAN NOT NULL
);
