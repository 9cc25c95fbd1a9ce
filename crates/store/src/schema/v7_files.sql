-- Shared files, and the blobs behind the large ones.
--
-- A file is what its owner shared last under a path (C41). As with memory, the row keeps the stamp of
-- the op that made it; `created_at` and `place` are this home's own. The id of a file is the `op_id`.
CREATE TABLE files (
    place INTEGER PRIMARY KEY,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    -- MEMBER_ID/agent: the owner, and the only one who writes it.
    peer TEXT NOT NULL,
    path TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    incarnation INTEGER NOT NULL,
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    tombstone INTEGER NOT NULL CHECK (tombstone = 0 OR tombstone = 1),
    storage TEXT NOT NULL CHECK (storage = 'none' OR storage = 'inline' OR storage = 'blob'),
    sha256 BLOB CHECK (sha256 IS NULL OR length(sha256) = 32),
    size INTEGER CHECK (size IS NULL OR size >= 0),
    mime TEXT,
    -- Last, so that reading the other columns never touches its pages.
    content BLOB,
    CHECK ((storage = 'none') = (tombstone = 1)),
    CHECK ((storage = 'none') = (sha256 IS NULL)),
    CHECK ((sha256 IS NULL) = (size IS NULL)),
    CHECK ((storage = 'inline') = (content IS NOT NULL)),
    CHECK (content IS NULL OR length(content) = size)
) STRICT;

CREATE UNIQUE INDEX files_by_path ON files (mesh_id, peer, path);
-- Not unique: an op id from elsewhere is only a claim.
CREATE INDEX files_by_op ON files (mesh_id, op_id);
CREATE INDEX files_deleted ON files (mesh_id, updated_at) WHERE tombstone = 1;

-- How many live rows name a blob (LF-26), kept by the triggers below and by nobody else.
CREATE TABLE blob_refs (
    sha256 BLOB PRIMARY KEY CHECK (length(sha256) = 32),
    ref_count INTEGER NOT NULL CHECK (ref_count >= 0),
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    -- Whether the bytes are in this home's blob folder. Set after they were synced (LF-29), taken back
    -- before they are removed.
    here INTEGER NOT NULL DEFAULT 0 CHECK (here = 0 OR here = 1),
    -- Nobody names it: the sweep removes the file, then this row.
    pending_unlink INTEGER NOT NULL CHECK (pending_unlink = 0 OR pending_unlink = 1),
    CHECK ((ref_count = 0) = (pending_unlink = 1))
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_refs_pending ON blob_refs (sha256) WHERE pending_unlink = 1;
CREATE INDEX blob_refs_wanted ON blob_refs (sha256) WHERE here = 0 AND pending_unlink = 0;

-- The last mark of a deleted file of this peer that was collected. An op that is not younger and finds
-- no row is one whose file is gone (LF-11).
CREATE TABLE file_floor (
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    peer TEXT NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    PRIMARY KEY (mesh_id, peer)
) STRICT, WITHOUT ROWID;

-- A blob that is named again is not to be removed any more: in the same transaction (C22).
CREATE TRIGGER files_is_shared AFTER INSERT ON files WHEN new.storage = 'blob' BEGIN
    INSERT INTO blob_refs (sha256, ref_count, bytes, pending_unlink)
        VALUES (new.sha256, 1, new.size, 0)
        ON CONFLICT (sha256) DO UPDATE SET ref_count = ref_count + 1, pending_unlink = 0;
END;

CREATE TRIGGER files_is_changed AFTER UPDATE ON files BEGIN
    INSERT INTO blob_refs (sha256, ref_count, bytes, pending_unlink)
        SELECT new.sha256, 1, new.size, 0 WHERE new.storage = 'blob'
        ON CONFLICT (sha256) DO UPDATE SET ref_count = ref_count + 1, pending_unlink = 0;
    UPDATE blob_refs SET ref_count = ref_count - 1, pending_unlink = (ref_count = 1)
        WHERE old.storage = 'blob' AND sha256 = old.sha256;
END;

CREATE TRIGGER files_is_gone AFTER DELETE ON files WHEN old.storage = 'blob' BEGIN
    UPDATE blob_refs SET ref_count = ref_count - 1, pending_unlink = (ref_count = 1)
        WHERE sha256 = old.sha256;
END;
