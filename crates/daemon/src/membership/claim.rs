//! Taking up an invitation at the broker that it names: one short connection.

use std::path::Path;

use futures_util::SinkExt as _;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MemberId;
use heddle_core::limits::HELLO_TIMEOUT;
use heddle_core::membership::{ClaimProof, Invite, MemberKey, Nonce, SignedInvite};
use heddle_core::names::MemberName;
use heddle_wire::broker::{BROKER_PROTOCOL, ClientFrame, ServerFrame};
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use http::Uri;
use tokio_tungstenite::tungstenite::Message;

use crate::link::{Connector as _, LinkStream, SessionEnd, UrlConnector, is_here, next_frame};

/// Who we are in the mesh from now on.
pub(super) struct Claimed {
    pub(super) member: MemberId,
    pub(super) name: MemberName,
    pub(super) duplicate: bool,
}

/// In clear the link's secret goes to this machine only; elsewhere by TLS.
pub(super) fn check_address(invite: &Invite) -> Result<(), Problem> {
    if is_protected(&invite.url) {
        return Ok(());
    }
    Err(invalid(format!(
        "the invitation is to {}; brokers beyond this machine are joined by wss:// only",
        heddle_core::redact::redact(&invite.url)
    )))
}

fn is_protected(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    uri.is_some_and(|uri| match uri.scheme_str() {
        Some("ws") => uri.host().is_some_and(is_here),
        Some("wss") => uri.host().is_some(),
        _ => false,
    })
}

/// The same for a broker that a mesh is published to.
pub(super) fn check_url(url: &str) -> Result<(), Problem> {
    if is_protected(url) && !url.contains('@') {
        return Ok(());
    }
    Err(from_wire::invalid(format!(
        "{:?} is no broker that a mesh is published to",
        heddle_core::redact::redact(url)
    ))
    .next("Name it as wss://HOST:PORT/, or as ws://127.0.0.1:PORT/ on this machine."))
}

/// The authorities of a way that is not encrypted are a mistake; and so are those that another folder would name.
pub(super) fn check_ca(url: &str, ca_file: Option<&Path>) -> Result<(), Problem> {
    match ca_file {
        Some(_) if !url.starts_with("wss://") => {
            Err(from_wire::invalid("--ca is for a broker at wss://")
                .next("Leave it out: on this machine the way is not encrypted."))
        }
        Some(file) if !file.is_absolute() => {
            Err(from_wire::invalid("ca_file is not a path from the root")
                .next("Name the whole path: the daemon stands in another folder."))
        }
        _ => Ok(()),
    }
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InviteInvalid, detail)
}

fn unreachable(why: &str) -> Problem {
    let detail = format!("the mesh's broker cannot be reached: {why}");
    Problem::new(ErrorCode::NotConnected, detail).next(
        "Make sure that the broker runs (for a mesh of somebody's own: `heddle up` in the home that invites), then join again with the same link.",
    )
}

/// Waiting does not help, and nothing of the link was told to anybody.
fn untrusted(why: &str) -> Problem {
    let detail = format!("the mesh's broker is not trusted: {why}");
    Problem::new(ErrorCode::InvalidRequest, detail).next(
        "Join again with the same link and --ca FILE, the certificate (PEM) of the authority that signed the broker's; no use was taken.",
    )
}

pub(super) async fn claim(
    link: &SignedInvite,
    ca_file: Option<&Path>,
    key: &MemberKey,
    name: &MemberName,
) -> Result<Claimed, Problem> {
    let asked = ask(link, ca_file, key, name);
    match tokio::time::timeout(HELLO_TIMEOUT, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(unreachable("it does not answer in time")),
    }
}

async fn reach(url: &str, ca_file: Option<&Path>) -> Result<LinkStream, Problem> {
    let connector = UrlConnector::new(url).with_ca_file(ca_file.map(Path::to_owned));
    connector.connect().await.map_err(|error| {
        let why = error.to_string();
        if error.is_ours {
            untrusted(&why)
        } else {
            unreachable(&why)
        }
    })
}

async fn ask(
    link: &SignedInvite,
    ca_file: Option<&Path>,
    key: &MemberKey,
    name: &MemberName,
) -> Result<Claimed, Problem> {
    let invite = &link.invite;
    let mut ws = reach(&invite.url, ca_file).await?;
    let broken = |end: SessionEnd| match end {
        SessionEnd::Lost { why, .. } => unreachable(&why),
        _ => unreachable("it closed the connection"),
    };
    let ServerFrame::Challenge {
        protocol: BROKER_PROTOCOL,
        nonce,
        broker: Some(broker),
    } = next_frame(&mut ws).await.map_err(broken)?
    else {
        return Err(invalid(
            "what answers at its address is no broker of this version",
        ));
    };
    // Nothing of the link is told to anybody but the broker that it was made for.
    if broker != invite.broker {
        return Err(invalid("another broker answers at its address now"));
    }
    let nonce = Nonce::parse(&nonce).map_err(|_| unreachable("its challenge is none"))?;
    let proof = ClaimProof {
        broker,
        mesh: invite.mesh,
        invite: invite.invite,
        nonce,
        key: key.public(),
        name,
    };
    let frame = ClientFrame::Claim {
        protocol: BROKER_PROTOCOL,
        link: link.link(),
        name: name.clone(),
        key: key.public(),
        signature: proof.sign(key),
    };
    let text = serde_json::to_string(&frame).map_err(|error| unreachable(&error.to_string()))?;
    let sent = ws.send(Message::text(text)).await;
    sent.map_err(|error| unreachable(&error.to_string()))?;
    match next_frame(&mut ws).await.map_err(broken)? {
        ServerFrame::Claimed {
            member,
            name,
            duplicate,
        } => Ok(Claimed {
            member,
            name,
            duplicate,
        }),
        ServerFrame::Refused(refused) => {
            let code = ErrorCode::parse(&refused.code).unwrap_or(ErrorCode::InviteInvalid);
            let problem = Problem::new(code, refused.detail);
            Err(match refused.suggestion {
                Some(free) => problem
                    .next(format!("Join again with --name {free}, or another name."))
                    .with("suggestion", free.to_string()),
                None => problem,
            })
        }
        _ => Err(unreachable("its answer is none")),
    }
}
