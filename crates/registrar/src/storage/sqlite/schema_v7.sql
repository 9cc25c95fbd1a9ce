-- The digest of a word about a request (kept.rs). Rows of before have none, and cannot be compared.

ALTER TABLE effect_decision ADD COLUMN digest BLOB CHECK (digest IS NULL OR length(digest) = 32);
