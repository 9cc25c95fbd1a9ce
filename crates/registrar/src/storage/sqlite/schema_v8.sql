-- The rows of before there were digests, each by its own name (kept.rs): a row without one that is not among them had one,
-- and is not as it was written. Nothing is added here after this step.

CREATE TABLE effect_undigested (
    mesh_id    BLOB NOT NULL,
    table_name TEXT NOT NULL,
    row_id     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, table_name, row_id, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO effect_undigested (mesh_id, table_name, row_id, seq)
SELECT mesh_id, 'effect_decision', envelope_id, seq FROM effect_decision WHERE digest IS NULL
UNION ALL
SELECT mesh_id, 'effect_registration', logical_request_key, 0 FROM effect_registration WHERE digest IS NULL
UNION ALL
SELECT mesh_id, 'effect_step', logical_request_key, seq FROM effect_step WHERE digest IS NULL;

CREATE TRIGGER effect_undigested_once BEFORE INSERT ON effect_undigested
    BEGIN SELECT RAISE(ABORT, 'effect_undigested is append-only'); END;
CREATE TRIGGER effect_undigested_keep BEFORE DELETE ON effect_undigested
    BEGIN SELECT RAISE(ABORT, 'effect_undigested is append-only'); END;
CREATE TRIGGER effect_undigested_hold BEFORE UPDATE ON effect_undigested
    BEGIN SELECT RAISE(ABORT, 'effect_undigested is append-only'); END;
