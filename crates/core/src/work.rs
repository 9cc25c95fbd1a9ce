//! Work queues: what a consumer's word about a message is worth. A pure decision.
//!
//! A message of a queue is taken under a lease with a number, the fence. The clock only says when a
//! lease may be taken over; whether a consumer may still settle is decided by its fence alone, so a
//! slow consumer whose lease ran out, but was not taken over, loses nothing.

/// Where a message of a queue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkState {
    Waiting,
    Leased,
    Acked,
}

/// What a consumer wants to do with a message that it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// It is done.
    Ack,
    /// Somebody else shall do it.
    Release,
    /// It takes longer than the lease: the same lease, for longer.
    Renew,
}

/// What becomes of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Write it.
    Apply,
    /// It was written before, by this very lease; the same answer again.
    Already,
    /// The lease is not the latest one, or it is over. Write nothing.
    StaleFence,
    /// There is no such message. Write nothing.
    Unknown,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkRow {
    pub name: &'static str,
    /// How one gets there.
    pub how: &'static str,
    pub state: WorkState,
    pub settle: Settle,
    pub settled: Settled,
}

/// For the holder of the latest lease. Everybody else is stale, whatever the state.
#[rustfmt::skip]
pub const WORK: [WorkRow; 9] = [
    WorkRow { name: "waiting_ack", how: "released, and then acknowledged all the same", state: WorkState::Waiting, settle: Settle::Ack, settled: Settled::StaleFence },
    WorkRow { name: "waiting_release", how: "a release whose answer was lost", state: WorkState::Waiting, settle: Settle::Release, settled: Settled::Already },
    WorkRow { name: "leased_ack", how: "the work is done", state: WorkState::Leased, settle: Settle::Ack, settled: Settled::Apply },
    WorkRow { name: "leased_release", how: "the work is given back", state: WorkState::Leased, settle: Settle::Release, settled: Settled::Apply },
    WorkRow { name: "acked_ack", how: "an ack whose answer was lost", state: WorkState::Acked, settle: Settle::Ack, settled: Settled::Already },
    WorkRow { name: "acked_release", how: "given back after it was done", state: WorkState::Acked, settle: Settle::Release, settled: Settled::StaleFence },
    WorkRow { name: "waiting_renew", how: "released, and then renewed all the same", state: WorkState::Waiting, settle: Settle::Renew, settled: Settled::StaleFence },
    WorkRow { name: "leased_renew", how: "the work goes on; also when the lease ran out, but nobody took it over", state: WorkState::Leased, settle: Settle::Renew, settled: Settled::Apply },
    WorkRow { name: "acked_renew", how: "renewed after it was done", state: WorkState::Acked, settle: Settle::Renew, settled: Settled::StaleFence },
];

/// `found` is the message's state, and whether the caller is the holder of its latest lease.
pub fn settle(found: Option<(WorkState, bool)>, settle: Settle) -> Settled {
    match found {
        None => Settled::Unknown,
        Some((_, false)) => Settled::StaleFence,
        Some((state, true)) => WORK
            .iter()
            .find(|row| row.state == state && row.settle == settle)
            .map_or(Settled::StaleFence, |row| row.settled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_and_only_the_latest_lease_of_open_work_writes() {
        let states = [WorkState::Waiting, WorkState::Leased, WorkState::Acked];
        for what in [Settle::Ack, Settle::Release, Settle::Renew] {
            assert_eq!(settle(None, what), Settled::Unknown);
            for state in states {
                let rows: Vec<_> = WORK
                    .iter()
                    .filter(|row| row.state == state && row.settle == what)
                    .collect();
                assert_eq!(rows.len(), 1, "{state:?} {what:?}");
                assert!(!rows[0].how.is_empty());
                assert_eq!(settle(Some((state, true)), what), rows[0].settled);
                assert_eq!(settle(Some((state, false)), what), Settled::StaleFence);
                let writes = state == WorkState::Leased;
                assert_eq!(rows[0].settled == Settled::Apply, writes);
            }
        }
    }
}
