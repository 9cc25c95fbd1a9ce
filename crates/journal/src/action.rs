//! The 42 actions in five classes, and what each class asks of a record (JN-27).
//!
//! The class is never written: the action alone says it. An action without a class does not compile.

use serde::{Deserialize, Serialize};

/// Which records of the registry must be whole. The bytes on disk are the same in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    Off,
    Dual,
    #[default]
    Primary,
    RegistryPrimary,
}

impl Mode {
    pub const ALL: [Self; 4] = [Self::Off, Self::Dual, Self::Primary, Self::RegistryPrimary];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Dual => "dual",
            Self::Primary => "primary",
            Self::RegistryPrimary => "registryPrimary",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionClass {
    EntityState,
    Tombstone,
    JournalMeta,
    Observability,
    RegistryLifecycle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Required,
    Optional,
    Forbidden,
}

/// What a class asks for: payload (or its reference), item id, entity revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    pub payload: Need,
    pub item_id: Need,
    pub entity_rev: Need,
}

macro_rules! actions {
    ($($class:ident { $($variant:ident = $name:literal,)* })*) => {
        /// What happened, as it stands in a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Action {
            $($(#[serde(rename = $name)] $variant,)*)*
        }

        impl Action {
            pub const ALL: &'static [Action] = &[$($(Action::$variant,)*)*];

            pub fn as_str(self) -> &'static str {
                match self { $($(Self::$variant => $name,)*)* }
            }

            /// The class of the table, before the mode is asked.
            fn home_class(self) -> ActionClass {
                match self { $($(Self::$variant)|* => ActionClass::$class,)* }
            }
        }
    };
}

actions! {
    EntityState {
        Create = "create",
        Update = "update",
        Accept = "accept",
        Reject = "reject",
        Claim = "claim",
        ReleaseClaim = "release_claim",
        Rollback = "rollback",
        Upgrade = "upgrade",
        Backfill = "backfill",
    }
    Tombstone {
        Delete = "delete",
    }
    JournalMeta {
        CheckpointRef = "checkpoint_ref",
        JournalNote = "journal_note",
        SeqRepair = "seq_repair",
        FederationApply = "federation_apply",
    }
    Observability {
        SessionStart = "session_start",
        SessionEnd = "session_end",
        AssignmentOffered = "assignment_offered",
        AssignmentProgress = "assignment_progress",
        RunProgress = "run_progress",
    }
    RegistryLifecycle {
        AssignmentCreated = "assignment_created",
        AssignmentAccepted = "assignment_accepted",
        AssignmentStarted = "assignment_started",
        AssignmentCompleted = "assignment_completed",
        AssignmentCancelled = "assignment_cancelled",
        AssignmentFailed = "assignment_failed",
        AssignmentBlocked = "assignment_blocked",
        AssignmentTimedOut = "assignment_timed_out",
        AssignmentExpired = "assignment_expired",
        AssignmentRetrying = "assignment_retrying",
        AssignmentRerouted = "assignment_rerouted",
        AssignmentAmended = "assignment_amended",
        RunCreated = "run_created",
        RunLaunching = "run_launching",
        RunWaitingInput = "run_waiting_input",
        RunRunning = "run_running",
        RunBlocked = "run_blocked",
        RunCompleted = "run_completed",
        RunFailed = "run_failed",
        RunCancelled = "run_cancelled",
        RunTimedOut = "run_timed_out",
        RunInterrupted = "run_interrupted",
        RunAmended = "run_amended",
    }
}

impl Action {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|a| a.as_str() == text)
    }

    /// An offered assignment is only a notification until the registry is journal-primary.
    pub fn class(self, mode: Mode) -> ActionClass {
        match (self, mode) {
            (Self::AssignmentOffered, Mode::RegistryPrimary) => ActionClass::RegistryLifecycle,
            _ => self.home_class(),
        }
    }

    pub fn needs(self, mode: Mode) -> Needs {
        use Need::{Forbidden, Optional, Required};
        let (payload, item_id, entity_rev) = match (self.class(mode), mode) {
            (ActionClass::EntityState, _)
            | (ActionClass::RegistryLifecycle, Mode::RegistryPrimary) => {
                (Required, Required, Required)
            }
            (ActionClass::Tombstone, _) => (Forbidden, Required, Required),
            (ActionClass::JournalMeta, _) => (Required, Forbidden, Forbidden),
            (ActionClass::Observability, _) => (Forbidden, Optional, Forbidden),
            (ActionClass::RegistryLifecycle, _) => (Optional, Required, Optional),
        };
        Needs {
            payload,
            item_id,
            entity_rev,
        }
    }
}

impl Need {
    pub fn allows(self, is_there: bool) -> bool {
        match self {
            Self::Required => is_there,
            Self::Optional => true,
            Self::Forbidden => !is_there,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jn_27_there_are_42_actions_and_each_has_one_class() {
        assert_eq!(Action::ALL.len(), 42);
        let count = |class| {
            let of_class = |a: &&Action| a.class(Mode::Primary) == class;
            Action::ALL.iter().filter(of_class).count()
        };
        assert_eq!(count(ActionClass::EntityState), 9);
        assert_eq!(count(ActionClass::Tombstone), 1);
        assert_eq!(count(ActionClass::JournalMeta), 4);
        assert_eq!(count(ActionClass::Observability), 5);
        assert_eq!(count(ActionClass::RegistryLifecycle), 23);
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(*action));
            let written = serde_json::to_string(action).unwrap();
            assert_eq!(written, format!("{:?}", action.as_str()));
        }
        assert_eq!(Action::parse("explode"), None);
    }

    #[test]
    fn jn_27_the_registry_must_be_whole_only_when_it_is_primary() {
        let early = Action::RunRunning.needs(Mode::Primary);
        assert_eq!(
            (early.payload, early.entity_rev),
            (Need::Optional, Need::Optional)
        );
        let late = Action::AssignmentOffered.needs(Mode::RegistryPrimary);
        assert_eq!(late.payload, Need::Required);
        assert_eq!(
            Action::AssignmentOffered.needs(Mode::Dual).payload,
            Need::Forbidden
        );
        // A tick stays a tick in every mode.
        assert_eq!(
            Action::RunProgress.needs(Mode::RegistryPrimary).payload,
            Need::Forbidden
        );
    }
}
