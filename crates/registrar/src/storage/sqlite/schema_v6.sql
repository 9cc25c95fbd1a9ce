-- How many rows each link has written about a key (tally.rs): a row that is gone, or is under another key now, is missed by
-- its number. What was there before is counted as link 0.

CREATE TABLE effect_tally (
    mesh_id             BLOB NOT NULL,
    logical_request_key TEXT NOT NULL,
    seq                 INTEGER NOT NULL,
    row_count           INTEGER NOT NULL CHECK (row_count > 0),
    PRIMARY KEY (mesh_id, logical_request_key, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER effect_tally_once BEFORE INSERT ON effect_tally
    WHEN EXISTS (SELECT 1 FROM effect_tally
        WHERE mesh_id = NEW.mesh_id AND logical_request_key = NEW.logical_request_key AND seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'effect_tally is append-only'); END;
CREATE TRIGGER effect_tally_keep BEFORE DELETE ON effect_tally
    BEGIN SELECT RAISE(ABORT, 'effect_tally is append-only'); END;
CREATE TRIGGER effect_tally_hold BEFORE UPDATE ON effect_tally
    BEGIN SELECT RAISE(ABORT, 'effect_tally is append-only'); END;

INSERT INTO effect_tally (mesh_id, logical_request_key, seq, row_count)
SELECT mesh_id, logical_request_key, 0, count(*) FROM (
    SELECT mesh_id, logical_request_key FROM effect_envelope
    UNION ALL
    SELECT mesh_id, logical_request_key FROM effect_decision JOIN effect_envelope USING (mesh_id, envelope_id)
    UNION ALL SELECT mesh_id, logical_request_key FROM effect_consume
    UNION ALL SELECT mesh_id, logical_request_key FROM effect_registration
    UNION ALL SELECT mesh_id, logical_request_key FROM effect_step
) GROUP BY mesh_id, logical_request_key;
