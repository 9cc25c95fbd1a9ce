-- What somebody else's file was before it was shared anew, as long as its new bytes are not here: who is cut off meanwhile reads
-- that, and is told so. Only of files whose bytes were here. The sweep leaves such a blob alone (`data/files/before.rs`).
CREATE TABLE file_before (
    -- As in `files`.
    place INTEGER PRIMARY KEY,
    updated_at INTEGER NOT NULL,
    lamport INTEGER NOT NULL CHECK (lamport >= 0),
    incarnation INTEGER NOT NULL,
    op_id BLOB NOT NULL CHECK (length(op_id) = 16),
    storage TEXT NOT NULL CHECK (storage = 'inline' OR storage = 'blob'),
    sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
    size INTEGER NOT NULL CHECK (size >= 0),
    mime TEXT,
    content BLOB,
    CHECK ((storage = 'inline') = (content IS NOT NULL))
) STRICT;

CREATE TRIGGER file_before_is_kept AFTER UPDATE OF storage, sha256, size ON files
WHEN new.storage = 'blob' AND old.storage <> 'none' AND old.sha256 <> new.sha256
    AND NOT EXISTS (SELECT 1 FROM blob_refs
        WHERE sha256 = new.sha256 AND here = 1 AND bytes = new.size)
    AND (old.storage = 'inline' OR EXISTS (SELECT 1 FROM blob_refs
        WHERE sha256 = old.sha256 AND here = 1 AND bytes = old.size))
BEGIN
    INSERT OR REPLACE INTO file_before (place, updated_at, lamport, incarnation, op_id, storage,
        sha256, size, mime, content)
    VALUES (old.place, old.updated_at, old.lamport, old.incarnation, old.op_id, old.storage,
        old.sha256, old.size, old.mime, old.content);
END;

CREATE TRIGGER file_before_is_over AFTER UPDATE OF storage, sha256, size ON files
WHEN new.storage <> 'blob' OR EXISTS (SELECT 1 FROM blob_refs
    WHERE sha256 = new.sha256 AND here = 1 AND bytes = new.size)
BEGIN
    DELETE FROM file_before WHERE place = new.place;
END;

CREATE TRIGGER file_before_has_come AFTER UPDATE OF here ON blob_refs WHEN new.here = 1 BEGIN
    DELETE FROM file_before WHERE EXISTS (SELECT 1 FROM files
        WHERE files.place = file_before.place AND files.storage = 'blob'
            AND files.sha256 = new.sha256);
END;

CREATE TRIGGER file_before_is_gone AFTER DELETE ON files BEGIN
    DELETE FROM file_before WHERE place = old.place;
END;
