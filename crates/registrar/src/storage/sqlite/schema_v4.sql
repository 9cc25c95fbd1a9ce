-- The chain of all that was written, how far a mesh was taken over from where it was before, and which meshes were
-- given away: all append-only.

CREATE TABLE effect_chain (
    seq    INTEGER PRIMARY KEY,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    seal   BLOB CHECK (seal IS NULL OR length(seal) = 32)
) STRICT;
CREATE TABLE effect_taken (
    mesh_id  BLOB NOT NULL,
    through  INTEGER NOT NULL,
    is_whole INTEGER NOT NULL CHECK (is_whole = 0 OR is_whole = 1),
    noted_at INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, through, is_whole)
) STRICT, WITHOUT ROWID;
CREATE TABLE effect_given (
    mesh_id  BLOB NOT NULL,
    what     TEXT NOT NULL CHECK (what = 'given' OR what = 'told'),
    noted_at INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, what)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER effect_chain_once BEFORE INSERT ON effect_chain
    WHEN EXISTS (SELECT 1 FROM effect_chain WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'effect_chain is append-only'); END;
CREATE TRIGGER effect_chain_keep BEFORE DELETE ON effect_chain
    BEGIN SELECT RAISE(ABORT, 'effect_chain is append-only'); END;
CREATE TRIGGER effect_chain_hold BEFORE UPDATE ON effect_chain
    BEGIN SELECT RAISE(ABORT, 'effect_chain is append-only'); END;
CREATE TRIGGER effect_taken_once BEFORE INSERT ON effect_taken
    WHEN EXISTS (SELECT 1 FROM effect_taken
        WHERE mesh_id = NEW.mesh_id AND through = NEW.through AND is_whole = NEW.is_whole)
    BEGIN SELECT RAISE(ABORT, 'effect_taken is append-only'); END;
CREATE TRIGGER effect_taken_keep BEFORE DELETE ON effect_taken
    BEGIN SELECT RAISE(ABORT, 'effect_taken is append-only'); END;
CREATE TRIGGER effect_taken_hold BEFORE UPDATE ON effect_taken
    BEGIN SELECT RAISE(ABORT, 'effect_taken is append-only'); END;
CREATE TRIGGER effect_given_once BEFORE INSERT ON effect_given
    WHEN EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = NEW.mesh_id AND what = NEW.what)
    BEGIN SELECT RAISE(ABORT, 'effect_given is append-only'); END;
CREATE TRIGGER effect_given_keep BEFORE DELETE ON effect_given
    BEGIN SELECT RAISE(ABORT, 'effect_given is append-only'); END;
CREATE TRIGGER effect_given_hold BEFORE UPDATE ON effect_given
    BEGIN SELECT RAISE(ABORT, 'effect_given is append-only'); END;

-- What was given away is decided about elsewhere, whatever the program that inserts believes.
CREATE TRIGGER effect_envelope_given BEFORE INSERT ON effect_envelope
    WHEN EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = NEW.mesh_id)
    BEGIN SELECT RAISE(ABORT, 'the mesh was given away'); END;
CREATE TRIGGER effect_decision_given BEFORE INSERT ON effect_decision
    WHEN EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = NEW.mesh_id)
    BEGIN SELECT RAISE(ABORT, 'the mesh was given away'); END;
CREATE TRIGGER effect_consume_given BEFORE INSERT ON effect_consume
    WHEN EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = NEW.mesh_id)
    BEGIN SELECT RAISE(ABORT, 'the mesh was given away'); END;
CREATE TRIGGER effect_step_given BEFORE INSERT ON effect_step
    WHEN EXISTS (SELECT 1 FROM effect_given WHERE mesh_id = NEW.mesh_id)
    BEGIN SELECT RAISE(ABORT, 'the mesh was given away'); END;
