-- The callers' own ids of their requests, consumed with what the requests wrote.

CREATE TABLE effect_call (
    mesh_id             BYTEA NOT NULL,
    caller              TEXT NOT NULL,
    call_id             TEXT NOT NULL,
    fingerprint         BYTEA NOT NULL CHECK (length(fingerprint) = 32),
    logical_request_key TEXT NOT NULL,
    called_at           BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, caller, call_id)
);
CREATE TRIGGER effect_call_hold BEFORE UPDATE OR DELETE ON effect_call FOR EACH ROW
    EXECUTE FUNCTION effect_refuse_change();
CREATE TRIGGER effect_call_keep BEFORE TRUNCATE ON effect_call FOR EACH STATEMENT
    EXECUTE FUNCTION effect_refuse_change();
REVOKE ALL ON effect_call FROM PUBLIC;
REVOKE UPDATE, DELETE, TRUNCATE ON effect_call FROM CURRENT_USER;
