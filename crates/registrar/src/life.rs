//! The life of an effect after S0, as a table of the moves that exist; every other move is refused.

/// Where an effect stands. `Running` is what the rows say; whether somebody still runs is not in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// S0: nothing is consumed.
    Issued,
    /// S2: key and inert registration are durable; the command has not begun.
    Registered,
    /// S2: the command has begun, and nothing says that it ended.
    Running,
    /// S2: the command ended; nobody has verified.
    Finished,
    /// S2: verified.
    Closed,
    /// S3: verification failed. From here on there is compensation only.
    VerifyFailed,
    /// S3: a compensation has begun, and nothing says that it ended.
    Compensating,
    /// S3: a compensation ended, and not well. Only a person's word leads on.
    CompensationFailed,
    /// S3: a compensation ended well, or a person says that it is made up for.
    Compensated,
}

/// A step that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Move {
    Register,
    Start,
    Finish,
    /// Its runner says: the command could not be started.
    NotStarted,
    /// A person says: it did not happen, it may run again.
    ResolveAgain,
    /// A person says: it did happen.
    ResolveDone,
    VerifyPass,
    VerifyFail,
    Compensate,
    CompensationDone,
    CompensationFail,
}

impl Stage {
    pub const ALL: &'static [Self] = &[
        Self::Issued,
        Self::Registered,
        Self::Running,
        Self::Finished,
        Self::Closed,
        Self::VerifyFailed,
        Self::Compensating,
        Self::CompensationFailed,
        Self::Compensated,
    ];

    /// The state's name in the specification. S1 and S4 are ends of an attempt, not of an effect.
    pub fn state(self) -> &'static str {
        match self {
            Self::Issued => "S0",
            Self::Registered | Self::Running | Self::Finished | Self::Closed => "S2",
            Self::VerifyFailed
            | Self::Compensating
            | Self::CompensationFailed
            | Self::Compensated => "S3",
        }
    }

    /// What the state says of the effect, for people.
    pub fn means(self) -> &'static str {
        match self.state() {
            "S0" => "issued: nothing is registered, and the key is free",
            "S2" => "committed: the key is used, and its registration stands",
            _ => "failed its verification: the key stays used, and there is compensation only",
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Issued => "issued",
            Self::Registered => "registered",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Closed => "closed",
            Self::VerifyFailed => "verify_failed",
            Self::Compensating => "compensating",
            Self::CompensationFailed => "compensation_failed",
            Self::Compensated => "compensated",
        }
    }
}

impl Move {
    pub const ALL: &'static [Self] = &[
        Self::Register,
        Self::Start,
        Self::Finish,
        Self::NotStarted,
        Self::ResolveAgain,
        Self::ResolveDone,
        Self::VerifyPass,
        Self::VerifyFail,
        Self::Compensate,
        Self::CompensationDone,
        Self::CompensationFail,
    ];
}

/// One move that exists.
#[derive(Debug)]
pub struct LifeRow {
    pub from: Stage,
    pub by: Move,
    pub to: Stage,
    pub how: &'static str,
}

pub const LIFE: &[LifeRow] = &[
    row(
        Stage::Issued,
        Move::Register,
        Stage::Registered,
        "consume and registration commit together",
    ),
    row(
        Stage::Registered,
        Move::Start,
        Stage::Running,
        "one attempt takes the run",
    ),
    row(
        Stage::Running,
        Move::Finish,
        Stage::Finished,
        "the attempt that took the run reports its end",
    ),
    row(
        Stage::Running,
        Move::NotStarted,
        Stage::Registered,
        "the command could not be started, so nothing ran",
    ),
    row(
        Stage::Running,
        Move::ResolveAgain,
        Stage::Registered,
        "the runner died, and a person says it did not happen",
    ),
    row(
        Stage::Running,
        Move::ResolveDone,
        Stage::Finished,
        "the runner died, and a person says it happened",
    ),
    row(
        Stage::Finished,
        Move::VerifyPass,
        Stage::Closed,
        "the verifier agrees",
    ),
    row(
        Stage::Finished,
        Move::VerifyFail,
        Stage::VerifyFailed,
        "the verifier rejects the committed effect",
    ),
    row(
        Stage::VerifyFailed,
        Move::Compensate,
        Stage::Compensating,
        "a nonce for compensation is consumed",
    ),
    row(
        Stage::Compensating,
        Move::CompensationDone,
        Stage::Compensated,
        "the compensation reports its end, and that it went well",
    ),
    row(
        Stage::Compensating,
        Move::CompensationFail,
        Stage::CompensationFailed,
        "the compensation reports its end, and that it went wrong",
    ),
    row(
        Stage::CompensationFailed,
        Move::ResolveAgain,
        Stage::VerifyFailed,
        "a person has looked, and says that it may be tried once more",
    ),
    row(
        Stage::CompensationFailed,
        Move::ResolveDone,
        Stage::Compensated,
        "a person has mended it by hand",
    ),
    row(
        Stage::Compensating,
        Move::NotStarted,
        Stage::VerifyFailed,
        "the command that makes up for it could not be started",
    ),
    row(
        Stage::Compensating,
        Move::ResolveAgain,
        Stage::VerifyFailed,
        "whoever compensated died, and a person says it did not happen",
    ),
    row(
        Stage::Compensating,
        Move::ResolveDone,
        Stage::Compensated,
        "whoever compensated died, and a person says it happened",
    ),
];

const fn row(from: Stage, by: Move, to: Stage, how: &'static str) -> LifeRow {
    LifeRow { from, by, to, how }
}

/// Where the move leads, if it exists.
pub fn after(from: Stage, by: Move) -> Option<Stage> {
    LIFE.iter()
        .find(|row| row.from == from && row.by == by)
        .map(|row| row.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_decided_once_and_every_stage_and_move_is_used() {
        for from in Stage::ALL {
            for by in Move::ALL {
                let rows = LIFE.iter().filter(|row| row.from == *from && row.by == *by);
                assert!(rows.count() <= 1, "{from:?} {by:?}");
            }
        }
        for stage in Stage::ALL {
            assert!(
                LIFE.iter()
                    .any(|row| row.from == *stage || row.to == *stage)
            );
        }
        for by in Move::ALL {
            assert!(LIFE.iter().any(|row| row.by == *by), "{by:?}");
        }
    }

    #[test]
    fn rg_18_only_s0_to_s2_and_s2_to_s3_or_closed_occur() {
        for row in LIFE {
            let states = (row.from.state(), row.to.state());
            let allowed = [("S0", "S2"), ("S2", "S2"), ("S2", "S3"), ("S3", "S3")];
            assert!(allowed.contains(&states), "{row:?}");
            assert!(!row.how.is_empty());
        }
        for by in Move::ALL {
            assert_eq!(after(Stage::Closed, *by), None, "closed is closed");
        }
    }

    #[test]
    fn rg_13_after_a_failed_verify_no_move_leads_to_a_run() {
        let mut reached = vec![Stage::VerifyFailed];
        let mut at = 0;
        while at < reached.len() {
            for by in Move::ALL {
                reached.extend(after(reached[at], *by).filter(|to| !reached.contains(to)));
            }
            at += 1;
        }
        assert!(!reached.contains(&Stage::Registered) && !reached.contains(&Stage::Running));
    }
}
