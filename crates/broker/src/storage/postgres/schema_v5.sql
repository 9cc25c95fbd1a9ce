-- When the latest lease began, for receipts. Null: nobody noted it.
ALTER TABLE queue_item ADD COLUMN taken_at BIGINT;
