//! Every code that an answer can carry, with its kind, its retry advice and its next step.
//!
//! Errors are typed below and classified once, here, at the door. The HTTP status, the CLI's exit
//! code and the sentence "what to do next" all derive from the code.

/// Who has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Caller,
    Conflict,
    Busy,
    Config,
    Internal,
}

/// Whether trying again can help, and under which id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    SameId,
    NewId,
}

impl Retry {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::SameId => "same_id",
            Self::NewId => "new_id",
        }
    }
}

macro_rules! error_codes {
    ($($variant:ident, $code:literal, $status:literal, $kind:ident, $retry:ident, $title:literal, $next:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode { $($variant,)* }

        impl ErrorCode {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// The HTTP status that carries it.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            pub fn kind(self) -> ErrorKind {
                match self { $(Self::$variant => ErrorKind::$kind,)* }
            }

            pub fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)* }
            }

            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What to do next, where the place that refused knows nothing better.
            pub fn next(self) -> &'static str {
                match self { $(Self::$variant => $next,)* }
            }
        }
    };
}

error_codes! {
    InvalidRequest, "invalid_request", 400, Caller, SameId, "The request cannot be understood", "Correct it and send it again; nothing was changed and no id was consumed.";
    AmbiguousRecipient, "ambiguous_recipient", 400, Caller, SameId, "The recipient could be several", "Name one of the candidates in full, as @member/agent.";
    Unauthorized, "unauthorized", 401, Caller, SameId, "The token is missing or wrong", "Send `Authorization: Bearer <token>` with the content of local_token in the home folder.";
    ForbiddenOrigin, "forbidden_origin", 403, Caller, Never, "The request did not come from this machine's own pages or tools", "Call http://127.0.0.1 without an Origin header, or use the Unix socket.";
    ForbiddenScope, "forbidden_scope", 403, Caller, Never, "The hook's token does not allow this", "Stay within the scopes that hooks.toml gives this hook, or add the scope there and start again.";
    RefusedByHook, "refused_by_hook", 403, Caller, SameId, "This home's own pre-send hook refused the message", "Change the message as the hook asks and send it again; nothing was accepted and no id was consumed.";
    NotAMember, "not_a_member", 403, Caller, NewId, "The sender is not a member of the mesh", "Ask for an invitation to the mesh, then join it.";
    NotTheOwner, "not_the_owner", 403, Caller, Never, "Only its owner may change this", "Act as its owner with --agent, or ask the owner.";
    NotOwner, "not_owner", 403, Caller, Never, "Only an owner of the mesh may do this", "Ask an owner of the mesh; `heddle mesh info` shows who that is. To keep what a member sends from this home alone, use `heddle block NAME`.";
    MemberRevoked, "member_revoked", 403, Caller, Never, "This home was shut out of the mesh", "Ask an owner of the mesh; a home that was shut out cannot come back under the same key.";
    MemberKeyLost, "member_key_lost", 403, Caller, Never, "This home's key in the mesh is gone", "Put the folder keys/ back from a backup and join again, or join from another home (HEDDLE_HOME or --home); nothing was changed.";
    MemberBlocked, "member_blocked", 403, Caller, SameId, "This home is blocked in the mesh", "Ask an owner of the mesh to lift that with `heddle mesh grant NAME member`; mail waits for you meanwhile.";
    LastOwner, "last_owner", 409, Conflict, Never, "A mesh has an owner", "Make somebody else an owner first with `heddle mesh grant NAME owner`; the home that hosts a mesh stays its owner.";
    InviteInvalid, "invite_invalid", 403, Caller, Never, "The invitation does not count", "Ask whoever invited you for a new link, and pass it on whole.";
    InviteExpired, "invite_expired", 403, Caller, Never, "The invitation has expired", "Ask whoever invited you for a new link.";
    InviteUsedUp, "invite_used_up", 403, Caller, Never, "The invitation is used up", "Ask whoever invited you for a new link; --uses N makes one for several.";
    UnknownMember, "unknown_member", 404, Caller, SameId, "There is no such member in the mesh", "`heddle mesh info` lists the members.";
    UnknownRecipient, "unknown_recipient", 404, Caller, SameId, "There is no such recipient", "Check the spelling against the candidates; `heddle peers` and `heddle topic list` show who and what exists.";
    UnknownAgent, "unknown_agent", 404, Caller, SameId, "There is no such agent in this home", "Run `heddle agent register NAME`, or `heddle agent list` to see those that exist.";
    UnknownMesh, "unknown_mesh", 404, Caller, SameId, "There is no such mesh in this home", "`heddle status` lists the meshes of this home.";
    UnknownKey, "unknown_key", 404, Caller, SameId, "There is no such key", "Check the spelling; `heddle recall`, `heddle state list` and `heddle vector list` show the keys that exist.";
    UnknownTask, "unknown_task", 404, Caller, SameId, "There is no such task", "Check the id; `heddle task list` shows the tasks that exist.";
    UnknownFile, "unknown_file", 404, Caller, SameId, "There is no such file", "`heddle file list` shows the files that are shared; sharing a path again gives it a new id.";
    FileElsewhere, "file_elsewhere", 404, Caller, SameId, "The file's content is not on this machine", "It is fetched as soon as somebody who has it is connected: try again then.";
    NotFound, "not_found", 404, Caller, Never, "There is nothing here", "Check the id or the path.";
    ReplayNonceConsumed, "REPLAY_NONCE_CONSUMED", 403, Caller, SameId, "The nonce has authorised another effect already", "Ask for a new approval; nothing was registered, and the key is still free.";
    NonceUnbound, "NONCE_UNBOUND", 403, Caller, SameId, "The nonce does not authorise this effect now", "Ask for a new approval of exactly this effect; nothing was registered, and the key is still free.";
    ReplayStaleRequest, "REPLAY_STALE_REQUEST", 403, Caller, SameId, "The approval was asked for too long ago", "Ask again with `heddle effect request`; nothing was registered, and the key is still free.";
    ApprovalNeeded, "APPROVAL_NEEDED", 403, Caller, SameId, "Somebody has to approve this effect first", "Ask with `heddle effect request`; a person answers with `heddle effect approve REQUEST_ID`, and the nonce goes to --nonce.";
    ApprovalRefused, "APPROVAL_REFUSED", 403, Caller, Never, "The policy, or a person, does not allow this", "`heddle effect status KEY` says who decided; effects.toml of who decides says who may.";
    EffectNotFound, "EFFECT_NOT_FOUND", 404, Caller, SameId, "There is no such effect", "Check the key or the request id; `heddle effect list` shows those that exist.";
    ReplayBindingMismatch, "REPLAY_BINDING_MISMATCH", 409, Conflict, NewId, "The key belongs to another effect", "Use a new key for a new effect; `heddle effect status KEY` shows what this one was used for.";
    EffectOutcomeUnknown, "EFFECT_OUTCOME_UNKNOWN", 409, Conflict, SameId, "Nobody knows whether the command ran to its end", "Look at the target; then a person who may approve repeats the run with --resolve=done or --resolve=again.";
    EffectStepRefused, "EFFECT_STEP_REFUSED", 409, Conflict, Never, "The effect is not where this step begins", "`heddle effect status KEY` says where it is.";
    MethodNotAllowed, "method_not_allowed", 405, Caller, Never, "The route does not take this method", "GET /v1/openapi.json says which method each route takes.";
    RequestTimeout, "request_timeout", 408, Caller, SameId, "The request took too long to arrive", "Send it again with the same id.";
    IdempotencyKeyReused, "idempotency_key_reused", 409, Conflict, NewId, "The id is taken", "Use a new id for a new request; an id is never free again.";
    TaskClaimed, "task_claimed", 409, Conflict, SameId, "Another agent holds the task", "Take another one; `heddle task ready` shows what can be begun.";
    StaleFence, "stale_fence", 409, Conflict, Never, "The claim is not the latest one", "Stop working on it; `heddle task show ID` says who holds it now.";
    TaskFinished, "task_finished", 409, Conflict, Never, "The task is finished", "Nothing is left to do on it; `heddle task show ID` shows how it ended.";
    NameTaken, "name_taken", 409, Conflict, SameId, "The name is taken", "Choose another name; nothing was changed.";
    PayloadPruned, "payload_pruned", 409, Conflict, NewId, "The row has given up its payload", "Send the message anew under a new id; the old id stays taken.";
    OutcomeUnknown, "outcome_unknown", 409, Conflict, Never, "Nobody knows any more whether the message arrived", "Ask whoever should have got it, or look into that inbox; --force sends it again, and it may arrive twice.";
    EpochMismatch, "epoch_mismatch", 409, Conflict, SameId, "The mesh's history is in another epoch", "Nothing was accepted; the daemon learns the new epoch and sends it again by itself.";
    PayloadTooLarge, "payload_too_large", 413, Caller, SameId, "Something in the request is larger than it may be", "Send less, or in several messages; nothing was consumed.";
    UriTooLong, "uri_too_long", 414, Caller, SameId, "The request target is too long", "Put long values into the body, or ask for less at once.";
    UnsupportedMediaType, "unsupported_media_type", 415, Caller, SameId, "The body is not JSON", "Send `Content-Type: application/json`.";
    DaemonBusy, "daemon_busy", 429, Busy, SameId, "Too many requests are in flight", "Wait a moment and send it again with the same id.";
    TooManyStreams, "too_many_streams", 429, Busy, SameId, "Too many event streams are open", "Close one and try again.";
    RateLimited, "rate_limited", 429, Busy, SameId, "The budget of this window is used up", "Wait for the next window; retries of committed ids cost nothing.";
    HeadersTooLarge, "headers_too_large", 431, Caller, SameId, "The request head is too long", "Send fewer or shorter headers; put long values into the body.";
    Internal, "internal", 500, Internal, SameId, "Something of ours went wrong", "Try again with the same id; if it stays, `heddle logs` says more.";
    HookUnavailable, "hook_unavailable", 503, Busy, SameId, "This home's pre-send hook gave no answer", "Nothing was accepted. `heddle logs` says why; mend hooks/pre-send, or switch it off in hooks.toml and start again.";
    FileDamaged, "file_damaged", 500, Internal, SameId, "The file's content on this disk is damaged", "Share the file again: good bytes take the place of the bad ones. Check the disk.";
    EmbeddingFailed, "embedding_failed", 502, Busy, SameId, "The provider gave no embedding", "See to the provider, or to [vectors] in config.toml, and send it again with the same id; nothing was changed.";
    NotConnected, "not_connected", 503, Busy, SameId, "The mesh's broker cannot be reached now", "Try again when `heddle status` says connected.";
    LimiterUnavailable, "limiter_unavailable", 503, Busy, SameId, "The limiter does not answer", "Nothing was accepted; the daemon tries again by itself.";
    StorageUnavailable, "storage_unavailable", 503, Internal, SameId, "The store does not take writes", "Restart with `heddle down` and `heddle up`; what was acknowledged is safe.";
    ShuttingDown, "shutting_down", 503, Busy, SameId, "The daemon is stopping", "Send it again with the same id when it is back.";
    InsufficientStorage, "insufficient_storage", 507, Busy, SameId, "The disk is full", "Free some space; known ids are still answered.";
}

impl ErrorCode {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// The CLI's exit code (CONTRACT).
    pub fn exit_code(self) -> u8 {
        match self {
            Self::InvalidRequest
            | Self::AmbiguousRecipient
            | Self::PayloadTooLarge
            | Self::UriTooLong
            | Self::HeadersTooLarge
            | Self::UnsupportedMediaType => 2,
            Self::ReplayBindingMismatch
            | Self::EffectStepRefused
            | Self::EffectOutcomeUnknown
            | Self::IdempotencyKeyReused
            | Self::PayloadPruned
            | Self::OutcomeUnknown
            | Self::TaskClaimed
            | Self::StaleFence
            | Self::EpochMismatch
            | Self::TaskFinished
            | Self::LastOwner
            | Self::NameTaken => 3,
            Self::UnknownRecipient
            | Self::UnknownAgent
            | Self::UnknownMember
            | Self::UnknownMesh
            | Self::UnknownKey
            | Self::UnknownTask
            | Self::UnknownFile
            | Self::FileElsewhere
            | Self::EffectNotFound
            | Self::NotFound => 4,
            Self::NotConnected | Self::ShuttingDown => 5,
            Self::Unauthorized
            | Self::ForbiddenOrigin
            | Self::ForbiddenScope
            | Self::RefusedByHook
            | Self::NotTheOwner
            | Self::NotAMember
            | Self::NotOwner
            | Self::MemberRevoked
            | Self::MemberKeyLost
            | Self::MemberBlocked
            | Self::InviteInvalid
            | Self::InviteExpired
            | Self::InviteUsedUp
            | Self::ReplayNonceConsumed
            | Self::NonceUnbound
            | Self::ReplayStaleRequest
            | Self::ApprovalNeeded
            | Self::ApprovalRefused => 6,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_says_what_to_do_next() {
        for code in ErrorCode::ALL {
            assert!(code.next().ends_with('.'), "{}", code.as_str());
            assert!(!code.title().is_empty());
            assert!((400..600).contains(&code.status()));
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
        }
    }

    #[test]
    fn what_is_busy_can_be_tried_again_under_the_same_id() {
        for code in ErrorCode::ALL {
            if code.kind() == ErrorKind::Busy {
                assert_eq!(code.retry(), Retry::SameId, "{}", code.as_str());
            }
        }
    }
}
