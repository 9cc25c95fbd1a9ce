-- How far the broker's answers to this home's own sends reach in the history of a mesh. A broker that has not
-- come so far is an earlier copy of itself. `looked_epoch`: up to this epoch of the broker, messages that it had
-- lost were looked for. `since_arrival`: rows up to this one were sent to the broker that the mesh had before.
CREATE TABLE outbox_reach (
    mesh_id BLOB PRIMARY KEY CHECK (length(mesh_id) = 16),
    history_epoch INTEGER NOT NULL,
    history_seq INTEGER NOT NULL,
    looked_epoch INTEGER NOT NULL,
    since_arrival INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

INSERT INTO outbox_reach (mesh_id, history_epoch, history_seq, looked_epoch)
SELECT mesh.mesh_id, far.history_epoch, max(far.history_seq), mesh.broker_epoch
FROM mesh JOIN outbox AS far ON far.mesh_id = mesh.mesh_id
WHERE far.history_epoch = (SELECT max(history_epoch) FROM outbox WHERE outbox.mesh_id = mesh.mesh_id)
GROUP BY mesh.mesh_id, far.history_epoch;

-- Messages that the broker had committed and has lost since, because an older file of it was put back. Their rows
-- in the outbox stay as they are: what is done is done (OB-09).
CREATE TABLE outbox_lost (
    arrival INTEGER PRIMARY KEY,
    mesh_id BLOB NOT NULL CHECK (length(mesh_id) = 16),
    -- The place that the broker has lost.
    lost_epoch INTEGER NOT NULL,
    lost_seq INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (
        state = 'waiting' OR state = 'held' OR state = 'gone' OR state = 'refused' OR state = 'sent'
        OR state = 'given_up'
    ),
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

CREATE INDEX outbox_lost_open ON outbox_lost (mesh_id, state);
