-- Time that certainly passed for a mesh (core/age), whatever the walls say; and at which start of which machine it was
-- last looked at.
CREATE TABLE age_clock (
    mesh_id BYTEA NOT NULL PRIMARY KEY REFERENCES mesh (mesh_id),
    age_ms BIGINT NOT NULL CHECK (age_ms >= 0),
    boot_id BYTEA,
    boot_ms BIGINT
);

-- Everything up to this place existed when the mesh was so old.
CREATE TABLE age_birth (
    mesh_id BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    age_ms BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq)
);

-- Ids are forgotten by how long they are kept, and by place: their times are of some wall.
DROP INDEX client_message_dedupe_due;
CREATE INDEX client_message_dedupe_kept ON client_message_dedupe (mesh_id, (expires_at - first_seen_at), epoch, seq)
WHERE expires_at IS NOT NULL;
