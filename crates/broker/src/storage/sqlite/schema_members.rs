//! The migrations of membership: standings, keys, invitations; and who is blocked.

pub(super) const MEMBERS: &str = "
-- The one table that is of no mesh: a challenge goes out before anybody has named one.
CREATE TABLE broker (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    broker_id BLOB NOT NULL CHECK (length(broker_id) = 16)
) STRICT;

CREATE TABLE member_standing (
    mesh_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    role TEXT NOT NULL CHECK (role = 'owner' OR role = 'member'),
    enrolled_at INTEGER NOT NULL,
    -- Null: the owner of the store.
    invite_id BLOB,
    revoked_at INTEGER,
    PRIMARY KEY (mesh_id, member_id),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
) STRICT, WITHOUT ROWID;

-- A key is one member's for ever; a member has one at a time.
CREATE TABLE member_key (
    mesh_id BLOB NOT NULL,
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    member_id BLOB NOT NULL,
    added_at INTEGER NOT NULL,
    retired_at INTEGER,
    PRIMARY KEY (mesh_id, public_key),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member_standing (mesh_id, member_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX member_key_current ON member_key (mesh_id, member_id) WHERE retired_at IS NULL;

CREATE TABLE invite (
    mesh_id BLOB NOT NULL REFERENCES mesh (mesh_id),
    invite_id BLOB NOT NULL CHECK (length(invite_id) = 16),
    -- Of the whole link, which is not kept.
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    inviter BLOB NOT NULL,
    role TEXT NOT NULL CHECK (role = 'owner' OR role = 'member'),
    uses_max INTEGER NOT NULL CHECK (uses_max >= 1),
    used INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0 AND used <= uses_max),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, invite_id)
) STRICT, WITHOUT ROWID;
";

pub(super) const BLOCKED: &str = "
-- Null: heard. Lifted by a grant, unlike revoked_at.
ALTER TABLE member_standing ADD COLUMN blocked_at INTEGER;
";
