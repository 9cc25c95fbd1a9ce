-- What is urgent is found behind a backlog of any length: when a window of the mesh's budget opens, it goes first. Only
-- urgent rows that wait are in it, so the others cost nothing more than before.
CREATE INDEX outbox_urgent ON outbox (mesh_id, due_mono_ms)
    WHERE status = 'pending' AND priority = 'now';
