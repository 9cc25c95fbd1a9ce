-- The chain of all that was written, and how far a mesh was taken over from where it was before: append-only.

CREATE TABLE effect_chain (
    seq    BIGINT NOT NULL PRIMARY KEY,
    digest BYTEA NOT NULL CHECK (length(digest) = 32),
    seal   BYTEA CHECK (seal IS NULL OR length(seal) = 32)
);
CREATE TABLE effect_taken (
    mesh_id  BYTEA NOT NULL,
    through  BIGINT NOT NULL,
    is_whole BOOLEAN NOT NULL,
    noted_at BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, through, is_whole)
);

CREATE TRIGGER effect_chain_hold BEFORE UPDATE OR DELETE ON effect_chain FOR EACH ROW
    EXECUTE FUNCTION effect_refuse_change();
CREATE TRIGGER effect_chain_keep BEFORE TRUNCATE ON effect_chain FOR EACH STATEMENT
    EXECUTE FUNCTION effect_refuse_change();
CREATE TRIGGER effect_taken_hold BEFORE UPDATE OR DELETE ON effect_taken FOR EACH ROW
    EXECUTE FUNCTION effect_refuse_change();
CREATE TRIGGER effect_taken_keep BEFORE TRUNCATE ON effect_taken FOR EACH STATEMENT
    EXECUTE FUNCTION effect_refuse_change();
REVOKE ALL ON effect_chain, effect_taken FROM PUBLIC;
REVOKE UPDATE, DELETE, TRUNCATE ON effect_chain, effect_taken FROM CURRENT_USER;
