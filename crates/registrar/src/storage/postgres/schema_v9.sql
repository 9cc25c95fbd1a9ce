-- The rows of before there were digests, each by its own name (kept.rs): a row without one that is not among them had one,
-- and is not as it was written. Nothing is added here after this step.

CREATE TABLE effect_undigested (
    mesh_id    BYTEA NOT NULL,
    table_name TEXT NOT NULL,
    row_id     TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, table_name, row_id, seq)
);
INSERT INTO effect_undigested (mesh_id, table_name, row_id, seq)
SELECT mesh_id, 'effect_decision', envelope_id, seq FROM effect_decision WHERE digest IS NULL
UNION ALL
SELECT mesh_id, 'effect_registration', logical_request_key, 0 FROM effect_registration WHERE digest IS NULL
UNION ALL
SELECT mesh_id, 'effect_step', logical_request_key, seq FROM effect_step WHERE digest IS NULL;

CREATE TRIGGER effect_undigested_hold BEFORE INSERT OR UPDATE OR DELETE ON effect_undigested FOR EACH ROW
    EXECUTE FUNCTION effect_refuse_change();
CREATE TRIGGER effect_undigested_keep BEFORE TRUNCATE ON effect_undigested FOR EACH STATEMENT
    EXECUTE FUNCTION effect_refuse_change();
REVOKE ALL ON effect_undigested FROM PUBLIC;
REVOKE UPDATE, DELETE, TRUNCATE ON effect_undigested FROM CURRENT_USER;
