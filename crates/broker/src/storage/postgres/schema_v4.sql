-- The upload of a snapshot, one for each member: rows that nobody reads before all of them are ops (LF-34).
CREATE TABLE snapshot_upload (
    mesh_id BYTEA NOT NULL REFERENCES mesh (mesh_id),
    member_id BYTEA NOT NULL CHECK (octet_length(member_id) = 16),
    snapshot_id TEXT COLLATE "C" NOT NULL,
    -- The sender's cursor: everything up to here is staged.
    through BIGINT NOT NULL CHECK (through >= 0),
    row_count BIGINT NOT NULL CHECK (row_count >= 0),
    byte_count BIGINT NOT NULL CHECK (byte_count >= 0),
    touched_at BIGINT NOT NULL,
    -- Null while it is open; then where its first op is, and how many there are.
    first_epoch BIGINT,
    first_seq BIGINT CHECK ((first_seq IS NULL) = (first_epoch IS NULL)),
    shown_count BIGINT CHECK ((shown_count IS NULL) = (first_epoch IS NULL)),
    PRIMARY KEY (mesh_id, member_id)
);

CREATE TABLE snapshot_row (
    mesh_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    position BIGINT NOT NULL CHECK (position >= 0),
    sender_agent TEXT COLLATE "C" NOT NULL,
    client_message_id TEXT COLLATE "C" NOT NULL,
    wire_fingerprint BYTEA NOT NULL CHECK (octet_length(wire_fingerprint) = 32),
    broker_message_id BYTEA NOT NULL CHECK (octet_length(broker_message_id) = 16),
    envelope TEXT NOT NULL,
    PRIMARY KEY (mesh_id, member_id, position)
);
