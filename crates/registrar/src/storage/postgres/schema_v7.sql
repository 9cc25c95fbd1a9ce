-- How many rows each link has written about a key (tally.rs): a row that is gone, or is under another key now, is missed by
-- its number. What was there before is counted as link 0.

CREATE TABLE effect_tally (
    mesh_id             BYTEA NOT NULL,
    logical_request_key TEXT NOT NULL,
    seq                 BIGINT NOT NULL,
    row_count           BIGINT NOT NULL CHECK (row_count > 0),
    PRIMARY KEY (mesh_id, logical_request_key, seq)
);
CREATE TRIGGER effect_tally_hold BEFORE UPDATE OR DELETE ON effect_tally FOR EACH ROW
    EXECUTE FUNCTION effect_refuse_change();
CREATE TRIGGER effect_tally_keep BEFORE TRUNCATE ON effect_tally FOR EACH STATEMENT
    EXECUTE FUNCTION effect_refuse_change();
REVOKE ALL ON effect_tally FROM PUBLIC;
REVOKE UPDATE, DELETE, TRUNCATE ON effect_tally FROM CURRENT_USER;

INSERT INTO effect_tally (mesh_id, logical_request_key, seq, row_count)
SELECT mesh_id, logical_request_key, 0, count(*) FROM (
    SELECT mesh_id, logical_request_key FROM effect_envelope
    UNION ALL
    SELECT mesh_id, logical_request_key FROM effect_decision JOIN effect_envelope USING (mesh_id, envelope_id)
    UNION ALL SELECT mesh_id, logical_request_key FROM effect_consume
    UNION ALL SELECT mesh_id, logical_request_key FROM effect_registration
    UNION ALL SELECT mesh_id, logical_request_key FROM effect_step
) AS written GROUP BY mesh_id, logical_request_key;
