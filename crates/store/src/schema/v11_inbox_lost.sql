-- Meshes whose part of the inbox was lost with a damaged file: what their brokers still hold is asked for
-- again, page by page. `cursor` is the broker's word for where the next page begins, NULL at first. A row
-- stays when all is done, so that it can be told what came back (`recovered`) and what did not (`gone`).
-- IF NOT EXISTS: the rebuild of a damaged file of an older version has made it already.
CREATE TABLE IF NOT EXISTS inbox_lost (
    mesh_id BLOB NOT NULL PRIMARY KEY CHECK (length(mesh_id) = 16),
    cursor TEXT,
    is_over INTEGER NOT NULL DEFAULT 0 CHECK (is_over = 0 OR is_over = 1),
    recovered INTEGER NOT NULL DEFAULT 0,
    gone INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
