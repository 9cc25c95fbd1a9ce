-- When, on the clock of the database, lease time was moved on last: a look knows by it that nobody does any more.
ALTER TABLE mesh ADD COLUMN lease_at TIMESTAMPTZ;
