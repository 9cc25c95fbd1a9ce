-- What a live vector was called when it was stored: its mesh, model, key and owner. A changed key is a key like any other, so
-- nothing else tells. A vector of before this step has none until it is stored again.
ALTER TABLE vector_digest ADD COLUMN named BLOB CHECK (named IS NULL OR length(named) = 16);
