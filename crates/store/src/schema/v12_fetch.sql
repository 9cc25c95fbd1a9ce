-- Carrying blobs between homes: which rows of a mesh name a blob.
CREATE INDEX files_by_hash ON files (mesh_id, sha256) WHERE storage = 'blob';
