-- The callers' own ids of their requests, and what this home has to tell an authority elsewhere.

CREATE TABLE effect_call (
    mesh_id             BLOB NOT NULL,
    caller              TEXT NOT NULL,
    call_id             TEXT NOT NULL,
    fingerprint         BLOB NOT NULL CHECK (length(fingerprint) = 32),
    logical_request_key TEXT NOT NULL,
    called_at           INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, caller, call_id)
) STRICT, WITHOUT ROWID;

-- A call that waits for the broker of its mesh; one that was answered has a row in effect_waited.
CREATE TABLE effect_waiting (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,
    mesh_id             BLOB NOT NULL,
    logical_request_key TEXT NOT NULL,
    caller              TEXT NOT NULL,
    call_id             TEXT NOT NULL,
    verb                TEXT NOT NULL,
    call                TEXT NOT NULL,
    waits_since         INTEGER NOT NULL,
    UNIQUE (mesh_id, caller, call_id)
) STRICT;
CREATE TABLE effect_waited (
    seq      INTEGER PRIMARY KEY REFERENCES effect_waiting (seq),
    outcome  TEXT NOT NULL,
    ended_at INTEGER NOT NULL
) STRICT;

CREATE TRIGGER effect_call_once BEFORE INSERT ON effect_call
    WHEN EXISTS (SELECT 1 FROM effect_call
        WHERE mesh_id = NEW.mesh_id AND caller = NEW.caller AND call_id = NEW.call_id)
    BEGIN SELECT RAISE(ABORT, 'effect_call is single-use'); END;

CREATE TRIGGER effect_call_keep BEFORE DELETE ON effect_call
    BEGIN SELECT RAISE(ABORT, 'effect_call is append-only'); END;
CREATE TRIGGER effect_call_hold BEFORE UPDATE ON effect_call
    BEGIN SELECT RAISE(ABORT, 'effect_call is append-only'); END;
CREATE TRIGGER effect_waiting_keep BEFORE DELETE ON effect_waiting
    BEGIN SELECT RAISE(ABORT, 'effect_waiting is append-only'); END;
CREATE TRIGGER effect_waiting_hold BEFORE UPDATE ON effect_waiting
    BEGIN SELECT RAISE(ABORT, 'effect_waiting is append-only'); END;
CREATE TRIGGER effect_waited_keep BEFORE DELETE ON effect_waited
    BEGIN SELECT RAISE(ABORT, 'effect_waited is append-only'); END;
CREATE TRIGGER effect_waited_hold BEFORE UPDATE ON effect_waited
    BEGIN SELECT RAISE(ABORT, 'effect_waited is append-only'); END;
