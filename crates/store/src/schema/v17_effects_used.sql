-- Whether this home has ever decided about an effect: without effects.db its keys would be free again, and only this
-- file can know that there were any.
ALTER TABLE store_state ADD COLUMN effects_used INTEGER NOT NULL DEFAULT 0;
