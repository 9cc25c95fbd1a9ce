-- One-time effects, as in SQLite. Append-only by triggers for everybody, and by rights for the registrar's role.

CREATE TABLE effect_surface (
    domain TEXT NOT NULL PRIMARY KEY
);
INSERT INTO effect_surface (domain) VALUES ('heddle.registrar.v1');

CREATE TABLE effect_envelope (
    mesh_id                BYTEA NOT NULL,
    envelope_id            TEXT NOT NULL,
    seq                    BIGINT GENERATED ALWAYS AS IDENTITY,
    logical_request_key    TEXT NOT NULL,
    canonical_operation    TEXT NOT NULL,
    canonical_target       TEXT NOT NULL,
    deployed_artifact_hash TEXT NOT NULL,
    run_id                 TEXT NOT NULL,
    replay_key             BYTEA NOT NULL,
    requested_by           TEXT NOT NULL,
    requested_at           BIGINT NOT NULL,
    expires_at             BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, envelope_id)
);
CREATE INDEX effect_envelope_key ON effect_envelope (mesh_id, logical_request_key);

CREATE TABLE effect_decision (
    mesh_id     BYTEA NOT NULL,
    envelope_id TEXT NOT NULL,
    seq         BIGINT NOT NULL,
    ruling      TEXT NOT NULL CHECK (ruling = 'approved' OR ruling = 'denied' OR ruling = 'revoked'),
    nonce_hash  BYTEA,
    purpose     TEXT CHECK (purpose IS NULL OR purpose = 'register' OR purpose = 'compensate'),
    not_before  BIGINT,
    expires_at  BIGINT,
    decided_by  TEXT NOT NULL,
    decided_at  BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, envelope_id, seq),
    UNIQUE (mesh_id, nonce_hash),
    CHECK ((ruling = 'approved') = (nonce_hash IS NOT NULL)),
    FOREIGN KEY (mesh_id, envelope_id) REFERENCES effect_envelope (mesh_id, envelope_id)
);

CREATE TABLE effect_consume (
    mesh_id                   BYTEA NOT NULL,
    logical_request_key       TEXT NOT NULL,
    replay_key                BYTEA NOT NULL CHECK (length(replay_key) = 32),
    canonical_operation       TEXT NOT NULL,
    canonical_target          TEXT NOT NULL,
    deployed_artifact_hash    TEXT NOT NULL,
    owner_or_approval_binding TEXT NOT NULL,
    run_id                    TEXT NOT NULL,
    authorization_nonce_hash  BYTEA NOT NULL CHECK (length(authorization_nonce_hash) = 32),
    attempt_id                TEXT NOT NULL,
    consumed_at               BIGINT NOT NULL,
    horizon_until             BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, logical_request_key),
    UNIQUE (mesh_id, replay_key),
    UNIQUE (mesh_id, authorization_nonce_hash)
);

CREATE TABLE effect_registration (
    mesh_id             BYTEA NOT NULL,
    logical_request_key TEXT NOT NULL,
    registration_id     TEXT NOT NULL,
    receipt             TEXT NOT NULL,
    registered_at       BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, logical_request_key),
    FOREIGN KEY (mesh_id, logical_request_key) REFERENCES effect_consume (mesh_id, logical_request_key)
);
-- The other way round at the commit: a key is consumed exactly when its registration exists.
ALTER TABLE effect_consume ADD CONSTRAINT effect_consume_registered
    FOREIGN KEY (mesh_id, logical_request_key) REFERENCES effect_registration (mesh_id, logical_request_key)
    DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE effect_step (
    mesh_id             BYTEA NOT NULL,
    logical_request_key TEXT NOT NULL,
    seq                 BIGINT GENERATED ALWAYS AS IDENTITY,
    round               BIGINT NOT NULL,
    step                TEXT NOT NULL CHECK (step = 'started' OR step = 'finished' OR step = 'resolved'
                            OR step = 'verified' OR step = 'compensating' OR step = 'compensated'),
    attempt_id          TEXT NOT NULL,
    nonce_hash          BYTEA,
    body                TEXT NOT NULL,
    taken_by            TEXT NOT NULL,
    taken_at            BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, logical_request_key, step, round),
    UNIQUE (mesh_id, nonce_hash),
    FOREIGN KEY (mesh_id, logical_request_key) REFERENCES effect_registration (mesh_id, logical_request_key)
);

CREATE TABLE effect_audit (
    mesh_id             BYTEA NOT NULL,
    seq                 BIGINT GENERATED ALWAYS AS IDENTITY,
    logical_request_key TEXT NOT NULL,
    attempt_id          TEXT NOT NULL,
    event               TEXT NOT NULL,
    code                TEXT NOT NULL,
    detail              TEXT NOT NULL,
    noted_by            TEXT NOT NULL,
    noted_at            BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, seq)
);
CREATE INDEX effect_audit_key ON effect_audit (mesh_id, logical_request_key, seq);

CREATE FUNCTION effect_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END $$;

DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['effect_surface', 'effect_envelope', 'effect_decision', 'effect_consume',
                                'effect_registration', 'effect_step', 'effect_audit'] LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE OR DELETE ON %I FOR EACH ROW
                        EXECUTE FUNCTION effect_refuse_change()', name || '_hold', name);
        EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %I FOR EACH STATEMENT
                        EXECUTE FUNCTION effect_refuse_change()', name || '_keep', name);
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC', name);
        -- Of no use against a superuser; that is what the role and the triggers are for.
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON %I FROM CURRENT_USER', name);
    END LOOP;
END $$;
