-- Null: heard. Lifted by a grant, unlike revoked_at.
ALTER TABLE member_standing ADD COLUMN blocked_at BIGINT;
