-- A trigger on insert, even one that never fires, makes SQLite keep a statement journal for each insert: copies of every
-- page it touches. That a row begins as pending is said by the one statement that inserts (`outbox/insert.rs`); how it
-- may move from there is still for the trigger `outbox_moves` to say.
DROP TRIGGER outbox_begins_pending;
