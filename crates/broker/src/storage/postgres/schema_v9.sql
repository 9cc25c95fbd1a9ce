-- Names the state of everything that an accept asks about its mesh: topics and who has subscribed, mailboxes, members and
-- their latest sessions, who may speak, who lets whom send what. Drawn anew by every change, and never the same twice,
-- so that a broker may keep what it has read for as long as it finds this unchanged under the lock of the row
-- (`accept/swift`). A count would come back to an old number when an older database is put back.
ALTER TABLE mesh ADD COLUMN roster_mark BIGINT NOT NULL DEFAULT hashtextextended(gen_random_uuid()::text, 0);

-- In the transaction of the change, whoever makes it.
CREATE FUNCTION roster_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE mesh SET roster_mark = DEFAULT WHERE mesh_id = CASE TG_OP WHEN 'DELETE' THEN OLD.mesh_id ELSE NEW.mesh_id END;
    RETURN NULL;
END $$;

CREATE TRIGGER roster_changed AFTER INSERT OR UPDATE OR DELETE ON topic
    FOR EACH ROW EXECUTE FUNCTION roster_changed();
CREATE TRIGGER roster_changed AFTER INSERT OR UPDATE OR DELETE ON topic_subscription
    FOR EACH ROW EXECUTE FUNCTION roster_changed();
CREATE TRIGGER roster_changed AFTER INSERT OR UPDATE OR DELETE ON agent
    FOR EACH ROW EXECUTE FUNCTION roster_changed();
-- Not for a name or for when it was seen: no accept asks for either.
CREATE TRIGGER roster_changed AFTER INSERT OR UPDATE OF mesh_id, member_id, generation OR DELETE ON member
    FOR EACH ROW EXECUTE FUNCTION roster_changed();
CREATE TRIGGER roster_changed AFTER INSERT OR UPDATE OR DELETE ON member_standing
    FOR EACH ROW EXECUTE FUNCTION roster_changed();
CREATE TRIGGER roster_changed AFTER INSERT OR UPDATE OR DELETE ON member_grant
    FOR EACH ROW EXECUTE FUNCTION roster_changed();

-- The rows of a set as an accept sends them. One list of records is read in a tenth of the time that as many lists of
-- columns take: `unnest` keeps a store of its own for each of those.
CREATE TYPE sent_message AS (
    id_key BYTEA, member BYTEA, agent TEXT, name TEXT, client_id TEXT, print BYTEA, id BYTEA, place BIGINT, kind TEXT,
    ref TEXT, at BIGINT, until BIGINT, slot BIGINT, counted BIGINT, envelope TEXT);
CREATE TYPE sent_delivery AS (member BYTEA, agent TEXT, place BIGINT, priority SMALLINT, id BYTEA);
CREATE TYPE sent_mention AS (member BYTEA, agent TEXT, place BIGINT);
CREATE TYPE sent_id AS (id_key BYTEA, member BYTEA, agent TEXT, client_id TEXT);
