-- What is written stays as it is, in every table. INSERT OR REPLACE deletes without asking a DELETE trigger, also by
-- the number of a row; and the list of the steps that made this file is a log like the others.

CREATE TRIGGER effect_surface_once BEFORE INSERT ON effect_surface
    WHEN EXISTS (SELECT 1 FROM effect_surface WHERE domain = NEW.domain)
    BEGIN SELECT RAISE(ABORT, 'effect_surface is append-only'); END;
CREATE TRIGGER effect_envelope_once BEFORE INSERT ON effect_envelope
    WHEN EXISTS (SELECT 1 FROM effect_envelope
        WHERE seq = NEW.seq OR (mesh_id = NEW.mesh_id AND envelope_id = NEW.envelope_id))
    BEGIN SELECT RAISE(ABORT, 'effect_envelope is append-only'); END;
CREATE TRIGGER effect_decision_once BEFORE INSERT ON effect_decision
    WHEN EXISTS (SELECT 1 FROM effect_decision
        WHERE (mesh_id = NEW.mesh_id AND envelope_id = NEW.envelope_id AND seq = NEW.seq)
           OR nonce_hash = NEW.nonce_hash)
    BEGIN SELECT RAISE(ABORT, 'effect_decision is append-only'); END;
CREATE TRIGGER effect_consume_row_once BEFORE INSERT ON effect_consume
    WHEN EXISTS (SELECT 1 FROM effect_consume WHERE rowid = NEW.rowid)
    BEGIN SELECT RAISE(ABORT, 'effect_consume is append-only'); END;
CREATE TRIGGER effect_step_row_once BEFORE INSERT ON effect_step
    WHEN EXISTS (SELECT 1 FROM effect_step WHERE seq = NEW.seq OR nonce_hash = NEW.nonce_hash)
    BEGIN SELECT RAISE(ABORT, 'effect_step is append-only'); END;
CREATE TRIGGER effect_audit_once BEFORE INSERT ON effect_audit
    WHEN EXISTS (SELECT 1 FROM effect_audit WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'effect_audit is append-only'); END;
CREATE TRIGGER effect_waiting_once BEFORE INSERT ON effect_waiting
    WHEN EXISTS (SELECT 1 FROM effect_waiting
        WHERE seq = NEW.seq OR (mesh_id = NEW.mesh_id AND caller = NEW.caller AND call_id = NEW.call_id))
    BEGIN SELECT RAISE(ABORT, 'effect_waiting is append-only'); END;
CREATE TRIGGER effect_waited_once BEFORE INSERT ON effect_waited
    WHEN EXISTS (SELECT 1 FROM effect_waited WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'effect_waited is append-only'); END;

CREATE TRIGGER effect_migration_once BEFORE INSERT ON _migrations
    WHEN EXISTS (SELECT 1 FROM _migrations WHERE version = NEW.version)
    BEGIN SELECT RAISE(ABORT, '_migrations is append-only'); END;
CREATE TRIGGER effect_migration_keep BEFORE DELETE ON _migrations
    BEGIN SELECT RAISE(ABORT, '_migrations is append-only'); END;
CREATE TRIGGER effect_migration_hold BEFORE UPDATE ON _migrations
    BEGIN SELECT RAISE(ABORT, '_migrations is append-only'); END;
