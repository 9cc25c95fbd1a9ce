-- What `member_id` lets `peer_id` send it; whoever has no row has everything. By sender, because an accept asks so.
CREATE TABLE member_grant (
    mesh_id BYTEA NOT NULL,
    peer_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    may_dm BOOLEAN NOT NULL,
    may_topic BOOLEAN NOT NULL,
    PRIMARY KEY (mesh_id, peer_id, member_id),
    FOREIGN KEY (mesh_id, peer_id) REFERENCES member (mesh_id, member_id),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
);

CREATE INDEX member_grant_own ON member_grant (mesh_id, member_id);

-- Who got no delivery of an accepted message because it had not granted its sender as much.
CREATE TABLE delivery_withheld (
    mesh_id BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    member_id BYTEA NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq, member_id)
);

-- Parts of files on their way from a member at one broker to a member at another: left, taken, deleted. Unlogged, because
-- none has to outlive anything: whoever wanted it asks again.
CREATE UNLOGGED TABLE blob_part (
    mesh_id BYTEA NOT NULL,
    member_id BYTEA NOT NULL,
    generation BIGINT NOT NULL,
    ask BIGINT NOT NULL,
    data BYTEA NOT NULL,
    left_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (mesh_id, member_id, generation, ask)
);
