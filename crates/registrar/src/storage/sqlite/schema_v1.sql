-- One-time effects. Every table is append-only: the triggers at the end refuse every change of a row.
-- The columns of effect_consume have the names of the specification (RS3B-05 §1, §6).

CREATE TABLE effect_surface (
    domain TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO effect_surface (domain) VALUES ('heddle.registrar.v1');

CREATE TABLE effect_envelope (
    seq                    INTEGER PRIMARY KEY AUTOINCREMENT,
    mesh_id                BLOB NOT NULL,
    envelope_id            TEXT NOT NULL,
    logical_request_key    TEXT NOT NULL,
    canonical_operation    TEXT NOT NULL,
    canonical_target       TEXT NOT NULL,
    deployed_artifact_hash TEXT NOT NULL,
    run_id                 TEXT NOT NULL,
    replay_key             BLOB NOT NULL,
    requested_by           TEXT NOT NULL,
    requested_at           INTEGER NOT NULL,
    expires_at             INTEGER NOT NULL,
    UNIQUE (mesh_id, envelope_id)
) STRICT;
CREATE INDEX effect_envelope_key ON effect_envelope (mesh_id, logical_request_key);

CREATE TABLE effect_decision (
    mesh_id     BLOB NOT NULL,
    envelope_id TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    ruling      TEXT NOT NULL CHECK (ruling = 'approved' OR ruling = 'denied' OR ruling = 'revoked'),
    nonce_hash  BLOB,
    purpose     TEXT CHECK (purpose IS NULL OR purpose = 'register' OR purpose = 'compensate'),
    not_before  INTEGER,
    expires_at  INTEGER,
    decided_by  TEXT NOT NULL,
    decided_at  INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, envelope_id, seq),
    UNIQUE (nonce_hash),
    CHECK ((ruling = 'approved') = (nonce_hash IS NOT NULL)),
    FOREIGN KEY (mesh_id, envelope_id) REFERENCES effect_envelope (mesh_id, envelope_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect_consume (
    mesh_id                   BLOB NOT NULL,
    logical_request_key       TEXT NOT NULL,
    replay_key                BLOB NOT NULL CHECK (length(replay_key) = 32),
    canonical_operation       TEXT NOT NULL,
    canonical_target          TEXT NOT NULL,
    deployed_artifact_hash    TEXT NOT NULL,
    owner_or_approval_binding TEXT NOT NULL,
    run_id                    TEXT NOT NULL,
    authorization_nonce_hash  BLOB NOT NULL CHECK (length(authorization_nonce_hash) = 32),
    attempt_id                TEXT NOT NULL,
    consumed_at               INTEGER NOT NULL,
    horizon_until             INTEGER NOT NULL,
    UNIQUE (mesh_id, logical_request_key),
    UNIQUE (mesh_id, replay_key),
    UNIQUE (authorization_nonce_hash)
) STRICT;

CREATE TABLE effect_registration (
    mesh_id             BLOB NOT NULL,
    logical_request_key TEXT NOT NULL,
    registration_id     TEXT NOT NULL,
    receipt             TEXT NOT NULL,
    registered_at       INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, logical_request_key),
    FOREIGN KEY (mesh_id, logical_request_key) REFERENCES effect_consume (mesh_id, logical_request_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect_step (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,
    mesh_id             BLOB NOT NULL,
    logical_request_key TEXT NOT NULL,
    round               INTEGER NOT NULL,
    step                TEXT NOT NULL CHECK (step = 'started' OR step = 'finished' OR step = 'resolved'
                            OR step = 'verified' OR step = 'compensating' OR step = 'compensated'),
    attempt_id          TEXT NOT NULL,
    nonce_hash          BLOB,
    body                TEXT NOT NULL,
    taken_by            TEXT NOT NULL,
    taken_at            INTEGER NOT NULL,
    UNIQUE (mesh_id, logical_request_key, step, round),
    UNIQUE (nonce_hash),
    FOREIGN KEY (mesh_id, logical_request_key) REFERENCES effect_registration (mesh_id, logical_request_key)
) STRICT;

-- Refers to nothing: it must be possible to write of what was rolled back.
CREATE TABLE effect_audit (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,
    mesh_id             BLOB NOT NULL,
    logical_request_key TEXT NOT NULL,
    attempt_id          TEXT NOT NULL,
    event               TEXT NOT NULL,
    code                TEXT NOT NULL,
    detail              TEXT NOT NULL,
    noted_by            TEXT NOT NULL,
    noted_at            INTEGER NOT NULL
) STRICT;
CREATE INDEX effect_audit_key ON effect_audit (mesh_id, logical_request_key, seq);

-- INSERT OR REPLACE deletes without asking the triggers below; these see it first.
CREATE TRIGGER effect_consume_once BEFORE INSERT ON effect_consume
    WHEN EXISTS (SELECT 1 FROM effect_consume
        WHERE (mesh_id = NEW.mesh_id AND logical_request_key = NEW.logical_request_key)
           OR (mesh_id = NEW.mesh_id AND replay_key = NEW.replay_key)
           OR authorization_nonce_hash = NEW.authorization_nonce_hash)
    BEGIN SELECT RAISE(ABORT, 'effect_consume is single-use'); END;
CREATE TRIGGER effect_registration_once BEFORE INSERT ON effect_registration
    WHEN EXISTS (SELECT 1 FROM effect_registration
        WHERE mesh_id = NEW.mesh_id AND logical_request_key = NEW.logical_request_key)
    BEGIN SELECT RAISE(ABORT, 'effect_registration is single-use'); END;
CREATE TRIGGER effect_step_once BEFORE INSERT ON effect_step
    WHEN EXISTS (SELECT 1 FROM effect_step
        WHERE mesh_id = NEW.mesh_id AND logical_request_key = NEW.logical_request_key
          AND step = NEW.step AND round = NEW.round)
    BEGIN SELECT RAISE(ABORT, 'effect_step is single-use'); END;

CREATE TRIGGER effect_surface_keep BEFORE DELETE ON effect_surface
    BEGIN SELECT RAISE(ABORT, 'effect_surface is append-only'); END;
CREATE TRIGGER effect_surface_hold BEFORE UPDATE ON effect_surface
    BEGIN SELECT RAISE(ABORT, 'effect_surface is append-only'); END;
CREATE TRIGGER effect_envelope_keep BEFORE DELETE ON effect_envelope
    BEGIN SELECT RAISE(ABORT, 'effect_envelope is append-only'); END;
CREATE TRIGGER effect_envelope_hold BEFORE UPDATE ON effect_envelope
    BEGIN SELECT RAISE(ABORT, 'effect_envelope is append-only'); END;
CREATE TRIGGER effect_decision_keep BEFORE DELETE ON effect_decision
    BEGIN SELECT RAISE(ABORT, 'effect_decision is append-only'); END;
CREATE TRIGGER effect_decision_hold BEFORE UPDATE ON effect_decision
    BEGIN SELECT RAISE(ABORT, 'effect_decision is append-only'); END;
CREATE TRIGGER effect_consume_keep BEFORE DELETE ON effect_consume
    BEGIN SELECT RAISE(ABORT, 'effect_consume is append-only'); END;
CREATE TRIGGER effect_consume_hold BEFORE UPDATE ON effect_consume
    BEGIN SELECT RAISE(ABORT, 'effect_consume is append-only'); END;
CREATE TRIGGER effect_registration_keep BEFORE DELETE ON effect_registration
    BEGIN SELECT RAISE(ABORT, 'effect_registration is append-only'); END;
CREATE TRIGGER effect_registration_hold BEFORE UPDATE ON effect_registration
    BEGIN SELECT RAISE(ABORT, 'effect_registration is append-only'); END;
CREATE TRIGGER effect_step_keep BEFORE DELETE ON effect_step
    BEGIN SELECT RAISE(ABORT, 'effect_step is append-only'); END;
CREATE TRIGGER effect_step_hold BEFORE UPDATE ON effect_step
    BEGIN SELECT RAISE(ABORT, 'effect_step is append-only'); END;
CREATE TRIGGER effect_audit_keep BEFORE DELETE ON effect_audit
    BEGIN SELECT RAISE(ABORT, 'effect_audit is append-only'); END;
CREATE TRIGGER effect_audit_hold BEFORE UPDATE ON effect_audit
    BEGIN SELECT RAISE(ABORT, 'effect_audit is append-only'); END;
