-- The snapshot of a publish is uploaded in parts and shown by its commit; or, at a broker that cannot, sent behind a
-- fence, op by op.
ALTER TABLE mesh_publish ADD COLUMN is_upload INTEGER NOT NULL DEFAULT 0 CHECK (is_upload = 0 OR is_upload = 1);
