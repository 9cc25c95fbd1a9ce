-- The clock of a mesh's log: the highest stamp of all ops that were admitted from it, in its order. Whether
-- a stamp is too far ahead is judged by this one, which is the same on every replica, and not by the home's
-- own, which is not.
ALTER TABLE lamport_clock ADD COLUMN log_value INTEGER NOT NULL DEFAULT 0 CHECK (log_value >= 0);
UPDATE lamport_clock SET log_value = value;
