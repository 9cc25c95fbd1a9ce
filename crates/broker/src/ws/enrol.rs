//! Taking up an invitation: a claim in place of a hello, one answer, and the end of the connection.

use heddle_core::error_code::ErrorCode;
use heddle_core::membership::{ClaimProof, Nonce, PublicKey, Signature, SignedInvite};
use heddle_core::names::MemberName;
use heddle_wire::broker::{ClaimRefused, ServerFrame};

use super::Shared;
use super::ending::Ending;
use super::hello::refuse;
use super::writer::Outbox;
use crate::accept::Refusal;
use crate::limiter::Limiter;
use crate::members::{EnrolVerdict, Enrolment};
use crate::storage::{Storage, StorageError};

/// What a claim says. It has proven nothing yet.
pub(super) struct Claiming {
    pub(super) link: String,
    pub(super) name: MemberName,
    pub(super) key: PublicKey,
    pub(super) signature: Signature,
}

/// Answers the claim. Whoever is enrolled connects anew, and says hello.
pub(super) async fn claim<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    nonce: Nonce,
    claiming: Claiming,
    outbox: &Outbox,
) -> Ending {
    let (frame, ending) = match decide(shared, nonce, claiming).await {
        Ok(answer) => answer,
        Err(ending) => return ending,
    };
    match outbox.send(&frame).await {
        Ok(()) => ending,
        Err(ending) => ending,
    }
}

async fn decide<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    nonce: Nonce,
    claiming: Claiming,
) -> Result<(ServerFrame, Ending), Ending> {
    let broker = shared.broker_id().await.map_err(refuse)?;
    let Ok(signed) = SignedInvite::parse(&claiming.link) else {
        return Ok(invalid("the link is not whole, or was changed on the way"));
    };
    let invite = &signed.invite;
    if invite.broker != broker {
        return Ok(invalid("the link is for another broker"));
    }
    let proof = ClaimProof {
        broker,
        mesh: invite.mesh,
        invite: invite.invite,
        nonce,
        key: claiming.key,
        name: &claiming.name,
    };
    if !proof.is_signed_by_its_key(&claiming.signature) {
        return Ok(invalid("the claim is not signed by the key that it names"));
    }
    let enrolment = Enrolment {
        invite: invite.invite,
        digest: signed.digest(),
        member: claiming.key.member_in(invite.mesh),
        name: claiming.name,
        key: claiming.key,
        at: shared.accept.clock.wall(),
    };
    let name = enrolment.name.clone();
    let verdict = match shared.storage().enrol(invite.mesh, enrolment).await {
        Err(StorageError::UnknownMesh(_)) => EnrolVerdict::UnknownInvite,
        other => other.map_err(refuse)?,
    };
    if let EnrolVerdict::Enrolled { member, name } = &verdict {
        tracing::info!(mesh = %invite.mesh, %member, %name, invite = %invite.invite, "a member joined");
        shared.roster_changed(invite.mesh, None);
    }
    Ok(answer(verdict, &name))
}

fn answer(verdict: EnrolVerdict, wanted: &MemberName) -> (ServerFrame, Ending) {
    let claimed = |member, name, duplicate| {
        let frame = ServerFrame::Claimed {
            member,
            name,
            duplicate,
        };
        (frame, Ending::Claimed)
    };
    let (code, detail, suggestion) = match verdict {
        EnrolVerdict::Enrolled { member, name } => return claimed(member, name, false),
        EnrolVerdict::Duplicate { member, name } => return claimed(member, name, true),
        EnrolVerdict::UnknownInvite => return invalid("the broker knows no such invitation"),
        EnrolVerdict::Expired { at } => {
            let detail = format!("the invitation expired at {}", at.to_rfc3339());
            (ErrorCode::InviteExpired, detail, None)
        }
        EnrolVerdict::UsedUp => {
            let detail = "everybody whom the invitation was for has joined".to_owned();
            (ErrorCode::InviteUsedUp, detail, None)
        }
        EnrolVerdict::NameTaken { suggestion } => {
            let detail = format!("somebody in the mesh is called {wanted} already");
            (ErrorCode::NameTaken, detail, suggestion)
        }
        EnrolVerdict::Revoked => {
            let detail = "the key of this home was shut out of the mesh".to_owned();
            (ErrorCode::MemberRevoked, detail, None)
        }
    };
    refused(Refusal::new(code, detail), suggestion)
}

/// The same words for a stranger's guess and for a link of another place, as far as that can be.
fn invalid(detail: &str) -> (ServerFrame, Ending) {
    refused(Refusal::new(ErrorCode::InviteInvalid, detail), None)
}

fn refused(refusal: Refusal, suggestion: Option<MemberName>) -> (ServerFrame, Ending) {
    let code = refusal.code.as_str();
    metrics::counter!("heddle_broker_claims_refused_total", "reason" => code).increment(1);
    let frame = ServerFrame::Refused(ClaimRefused {
        code: code.to_owned(),
        detail: refusal.detail,
        suggestion,
    });
    (frame, Ending::ClaimRefused)
}
