-- What the commit of an upload could not take: nothing, or how many rows and their names.
ALTER TABLE snapshot_upload ADD COLUMN left_out TEXT NOT NULL DEFAULT '';
