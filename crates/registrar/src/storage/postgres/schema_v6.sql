-- A digest over what is answered from, bound to the effect (kept.rs). Rows of before have none, and cannot be compared.

ALTER TABLE effect_step ADD COLUMN digest BYTEA CHECK (digest IS NULL OR length(digest) = 32);
ALTER TABLE effect_registration ADD COLUMN digest BYTEA CHECK (digest IS NULL OR length(digest) = 32);
