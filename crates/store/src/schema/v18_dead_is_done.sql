-- A row that died while the broker could not be asked may turn out to be there: a requeue asks first, and
-- such a row becomes done (C5, DR-05). Says the same as OutboxStatus::may_become; a test compares all pairs.
DROP TRIGGER outbox_moves;
CREATE TRIGGER outbox_moves BEFORE UPDATE OF status ON outbox
WHEN NOT (
    (OLD.status = 'pending'
        AND (NEW.status = 'inflight' OR NEW.status = 'dead' OR NEW.status = 'aborted'))
    OR (OLD.status = 'inflight'
        AND (NEW.status = 'pending' OR NEW.status = 'done' OR NEW.status = 'dead'))
    OR (OLD.status = 'dead' AND (NEW.status = 'aborted' OR NEW.status = 'done'))
)
BEGIN
    SELECT RAISE(ABORT, 'an outbox row may not move like this');
END;
