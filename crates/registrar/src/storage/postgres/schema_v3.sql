-- The list of the steps that made this schema is a log like the others.

CREATE TRIGGER effect_migration_hold BEFORE UPDATE OR DELETE ON effect_migration FOR EACH ROW
    EXECUTE FUNCTION effect_refuse_change();
CREATE TRIGGER effect_migration_keep BEFORE TRUNCATE ON effect_migration FOR EACH STATEMENT
    EXECUTE FUNCTION effect_refuse_change();
REVOKE ALL ON effect_migration FROM PUBLIC;
REVOKE UPDATE, DELETE, TRUNCATE ON effect_migration FROM CURRENT_USER;
