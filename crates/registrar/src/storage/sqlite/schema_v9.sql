-- The digest of a call that waits for its broker (kept.rs): how a command ended is told as its runner has said it, or not at
-- all. Rows of before have none; which ones they are is written down, once more and for the last time.

ALTER TABLE effect_waiting ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);

DROP TRIGGER effect_undigested_once;
INSERT INTO effect_undigested (mesh_id, table_name, row_id, seq)
SELECT mesh_id, 'effect_waiting', call_id, seq FROM effect_waiting;
CREATE TRIGGER effect_undigested_once BEFORE INSERT ON effect_undigested
    BEGIN SELECT RAISE(ABORT, 'effect_undigested is append-only'); END;
