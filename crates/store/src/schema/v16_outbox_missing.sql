-- How many places in the order of arrival have no row, because a repair could not read it. Nothing else ever
-- takes a row out of the outbox, so what is done can be counted without visiting every row.
ALTER TABLE store_state ADD COLUMN outbox_missing INTEGER NOT NULL DEFAULT 0;
UPDATE store_state SET outbox_missing = (SELECT coalesce(max(arrival), 0) - count(*) FROM outbox);
