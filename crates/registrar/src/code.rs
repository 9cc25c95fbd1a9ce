//! The code that every answer of the registrar names.

/// Why an answer is what it is. The first eight are those of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// This very registration was made before; its result is the answer.
    ReplayDuplicate,
    /// The nonce has authorised another effect already.
    ReplayNonceConsumed,
    /// The nonce is not one of this envelope, or not one of this moment.
    NonceUnbound,
    /// Somebody else registered the key while this attempt was on its way; their result is the answer.
    AttemptCollision,
    /// The approval was asked for too long ago.
    ReplayStaleRequest,
    /// The key belongs to another operation, target, artifact, approval or run.
    ReplayBindingMismatch,
    /// Another attempt id does not make another effect; the first result is the answer.
    ReplayAttemptNoBypass,
    /// The store cannot keep the promise.
    ReplaySurfaceNotFit,
    /// Somebody has to approve first.
    ApprovalNeeded,
    /// The policy, or a person, said no.
    ApprovalRefused,
    /// Nobody knows whether the command ran to its end.
    OutcomeUnknown,
    /// The effect's life does not allow this step now.
    StepRefused,
    /// No such effect or envelope.
    NotFound,
    /// The caller's own id was used for another request.
    CallReused,
}

impl Code {
    pub const ALL: &'static [Self] = &[
        Self::ReplayDuplicate,
        Self::ReplayNonceConsumed,
        Self::NonceUnbound,
        Self::AttemptCollision,
        Self::ReplayStaleRequest,
        Self::ReplayBindingMismatch,
        Self::ReplayAttemptNoBypass,
        Self::ReplaySurfaceNotFit,
        Self::ApprovalNeeded,
        Self::ApprovalRefused,
        Self::OutcomeUnknown,
        Self::StepRefused,
        Self::NotFound,
        Self::CallReused,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReplayDuplicate => "REPLAY_DUPLICATE",
            Self::ReplayNonceConsumed => "REPLAY_NONCE_CONSUMED",
            Self::NonceUnbound => "NONCE_UNBOUND",
            Self::AttemptCollision => "ATTEMPT_COLLISION",
            Self::ReplayStaleRequest => "REPLAY_STALE_REQUEST",
            Self::ReplayBindingMismatch => "REPLAY_BINDING_MISMATCH",
            Self::ReplayAttemptNoBypass => "REPLAY_ATTEMPT_NO_BYPASS",
            Self::ReplaySurfaceNotFit => "REPLAY_SURFACE_NOT_FIT",
            Self::ApprovalNeeded => "APPROVAL_NEEDED",
            Self::ApprovalRefused => "APPROVAL_REFUSED",
            Self::OutcomeUnknown => "EFFECT_OUTCOME_UNKNOWN",
            Self::StepRefused => "EFFECT_STEP_REFUSED",
            Self::NotFound => "EFFECT_NOT_FOUND",
            Self::CallReused => "IDEMPOTENCY_KEY_REUSED",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_reads_back() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        assert_eq!(Code::parse("replay_duplicate"), None);
    }
}
