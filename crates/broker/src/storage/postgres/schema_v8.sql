-- Stretches of a log whose ops were lost: behind the first place, through the second one.
CREATE TABLE log_hole (
    mesh_id BYTEA NOT NULL REFERENCES mesh (mesh_id),
    after_epoch BIGINT NOT NULL,
    after_seq BIGINT NOT NULL,
    through_epoch BIGINT NOT NULL,
    through_seq BIGINT NOT NULL,
    PRIMARY KEY (mesh_id, after_epoch, after_seq)
);
