-- What a row of the data was when it was written, over every cell that means something (`data/seal.rs`): a changed letter is a
-- letter like any other, so nothing else tells that a disk has changed it. Rows of before this step get theirs when the
-- file is opened, a few at a time; `rows_sealed` says that all of them have one. From then on a row without is no row.
ALTER TABLE memory ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);
ALTER TABLE state_kv ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);
ALTER TABLE files ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);
ALTER TABLE vector_metadata ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);
ALTER TABLE task_op ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);
-- Of the row with what blocks it, and of its record.
ALTER TABLE tasks ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);

ALTER TABLE store_state ADD COLUMN rows_sealed INTEGER NOT NULL DEFAULT 0
    CHECK (rows_sealed = 0 OR rows_sealed = 1);

-- A digest that comes later changes neither what is found of a memory nor which blob a file names.
DROP TRIGGER memory_is_changed;
CREATE TRIGGER memory_is_changed AFTER UPDATE OF key, tags, tombstone, value ON memory BEGIN
    DELETE FROM memory_fts WHERE rowid = old.place;
    INSERT INTO memory_fts (rowid, key, words, tags)
        SELECT place, key, words, tags FROM memory_words WHERE place = new.place;
END;

DROP TRIGGER files_is_changed;
CREATE TRIGGER files_is_changed AFTER UPDATE OF storage, sha256, size ON files BEGIN
    INSERT INTO blob_refs (sha256, ref_count, bytes, pending_unlink)
        SELECT new.sha256, 1, new.size, 0 WHERE new.storage = 'blob'
        ON CONFLICT (sha256) DO UPDATE SET ref_count = ref_count + 1, pending_unlink = 0;
    UPDATE blob_refs SET ref_count = ref_count - 1, pending_unlink = (ref_count = 1)
        WHERE old.storage = 'blob' AND sha256 = old.sha256;
END;
