-- What was accepted, as the broker gave it with the message, or as it was when it came: a kept message that is not that
-- any more is never shown as true. Null: it came before this step.
ALTER TABLE inbox ADD COLUMN wire_fingerprint BLOB CHECK (length(wire_fingerprint) = 32);
