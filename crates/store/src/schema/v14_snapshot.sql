-- A large mesh is published as one snapshot (LF-34): nothing of it is sent before the broker has begun one,
-- and it is committed when the broker has all of it.
ALTER TABLE mesh_publish ADD COLUMN snapshot TEXT NOT NULL DEFAULT 'none'
    CHECK (snapshot = 'none' OR snapshot = 'wanted' OR snapshot = 'open' OR snapshot = 'committed');
-- The last op of the publish in the outbox; null until all of them are there.
ALTER TABLE mesh_publish ADD COLUMN sent_through INTEGER;
