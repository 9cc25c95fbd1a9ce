-- Invitations that were made under an idempotency key: the same key gives the same link. The link is a
-- secret, as the keys beside this file are.
CREATE TABLE invite_key (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    request_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    made_at INTEGER NOT NULL,
    link TEXT NOT NULL,
    PRIMARY KEY (mesh_id, request_key)
) STRICT, WITHOUT ROWID;
