//! Challenge, hello, welcome: what both sides must agree on before anything is sent.

use futures_util::{SinkExt as _, StreamExt as _};
use heddle_core::ids::BrokerId;
use heddle_core::limits::{AGENTS_MAX, HELLO_TIMEOUT};
use heddle_core::membership::{HelloProof, Nonce, Signature};
use heddle_core::names::AgentName;
use heddle_core::negotiate::{
    BLOB_RELAY, CloseCode, EFFECT_HAND_OVER, Features, LOG_SNAPSHOT, PROTOCOL, Refusal,
    SNAPSHOT_UPLOAD, negotiate, read_features,
};
use heddle_core::retention::max_age_hours;
use heddle_core::witness::Witness;
use heddle_wire::broker::{BROKER_PROTOCOL, ClientFrame, Roster, ServerFrame};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode as WsCloseCode;
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use super::LinkStream;
use super::live::Offers;
use super::session::SessionEnd;
use crate::membership::{Barred, Unfit};
use crate::mesh::MeshState;
use crate::shared::Shared;

/// What the broker welcomed us with.
pub(super) struct Welcomed {
    pub(super) roster: Roster,
    pub(super) offers: Offers,
    /// Of the broker's history.
    pub(super) epoch: u64,
}

pub(super) async fn handshake(
    shared: &Shared,
    mesh: &MeshState,
    ws: &mut LinkStream,
) -> Result<Welcomed, SessionEnd> {
    match tokio::time::timeout(HELLO_TIMEOUT, greet(shared, mesh, ws)).await {
        Ok(result) => result,
        Err(_) => Err(lost("the broker did not greet in time")),
    }
}

async fn greet(
    shared: &Shared,
    mesh: &MeshState,
    ws: &mut LinkStream,
) -> Result<Welcomed, SessionEnd> {
    let signature = match greeting(ws, "challenge").await? {
        ServerFrame::Challenge {
            protocol: BROKER_PROTOCOL,
            nonce,
            broker,
        } => {
            mesh.set_broker_id(broker);
            sign(mesh, broker, &nonce)?
        }
        ServerFrame::Challenge { protocol, .. } => {
            return Err(SessionEnd::Unfit(Unfit::broker(format!(
                "it speaks protocol {protocol}, this daemon speaks {BROKER_PROTOCOL}; update the older of the two"
            ))));
        }
        other => return Err(unexpected(ws, &other, "challenge").await),
    };
    let seen = shared.store.history_seen(mesh.mesh.mesh).await;
    let seen = seen.map_err(|error| lost(&error.to_string()))?;
    let agents: Vec<AgentName> = mesh.own_agents().into_iter().take(AGENTS_MAX).collect();
    let witnesses = witnesses(shared, mesh, &agents).await?;
    let hello = ClientFrame::Hello {
        protocol: BROKER_PROTOCOL,
        mesh: mesh.mesh.mesh,
        member: mesh.mesh.member,
        member_name: mesh.mesh.member_name.clone(),
        agents,
        // Acknowledges nothing: by priority a later place comes before an earlier one, and a crash may
        // have come between the two. What is held is acknowledged item by item; the rest comes again.
        seen,
        witnesses,
        signature,
    };
    say(ws, &hello).await?;
    let (features, roster, epoch) = match greeting(ws, "welcome").await? {
        ServerFrame::Welcome {
            features,
            roster,
            epoch,
            ..
        } => (features, roster, epoch),
        other => return Err(unexpected(ws, &other, "welcome").await),
    };
    tracing::debug!(?features, "broker features");
    let heard = shared.store.hear_epoch(mesh.mesh.mesh, epoch).await;
    heard.map_err(|error| lost(&error.to_string()))?;
    let agreed = read_features(&features).and_then(|read| Ok((negotiate(&read)?, read)));
    match agreed {
        Ok((negotiated, features)) => {
            // The window handshake: an outbox that could outlive the broker's memory may not run.
            let hours = max_age_hours(negotiated.dedupe, shared.max_age_hours_override)
                .map_err(|error| SessionEnd::Unfit(error.into()))?;
            mesh.set_max_age_hours(shared, hours).await;
            mesh.set_memory(negotiated.dedupe);
            Ok(Welcomed {
                roster,
                offers: offers(&features),
                epoch,
            })
        }
        Err(refusal) => {
            warn_unfit(mesh, &features, &refusal);
            Err(refuse(ws, &refusal).await)
        }
    }
}

/// What this home knows of the places of the history.
async fn witnesses(
    shared: &Shared,
    mesh: &MeshState,
    agents: &[AgentName],
) -> Result<Vec<Witness>, SessionEnd> {
    let known = shared.store.witnesses(mesh.mesh.mesh, agents.to_vec());
    let known = known.await.map_err(|error| lost(&error.to_string()))?;
    Ok(mesh.displaced.with(known))
}

/// Whole, as the broker said it, and as JSON: that is what somebody compares.
fn warn_unfit(mesh: &MeshState, features: &serde_json::Value, refusal: &Refusal) {
    tracing::warn!(
        mesh = %mesh.mesh.name,
        %features,
        "negotiation failed, so this home and the broker cannot work together: {refusal}"
    );
}

/// Closes with the code and its JSON reason, and says the same here.
async fn refuse(ws: &mut LinkStream, refusal: &Refusal) -> SessionEnd {
    close(ws, refusal).await;
    SessionEnd::Unfit(Unfit::broker(format!(
        "{} {} ({})",
        refusal.code.number(),
        refusal.close_reason(),
        refusal.detail
    )))
}

/// A frame of the greeting. One that cannot be read comes from a broker of another make, or from something that is
/// none: asking it again would not change that.
async fn greeting(ws: &mut LinkStream, expected: &str) -> Result<ServerFrame, SessionEnd> {
    let why = match next_text(ws).await? {
        Some(text) => match ServerFrame::parse(&text) {
            Ok(frame) => return Ok(frame),
            Err(error) => error.to_string(),
        },
        None => "it is binary".to_owned(),
    };
    let why = format!("the broker's greeting cannot be read as a {expected}: {why}");
    Err(refuse(ws, &invalid(why)).await)
}

/// Something that a broker says, but not now.
async fn unexpected(ws: &mut LinkStream, frame: &ServerFrame, expected: &str) -> SessionEnd {
    let said = serde_json::to_value(frame).unwrap_or_default();
    let said = said["type"].as_str().unwrap_or("nothing").to_owned();
    let why = format!("the broker said {said} where a {expected} is due");
    refuse(ws, &invalid(why)).await
}

fn invalid(why: String) -> Refusal {
    Refusal {
        code: CloseCode::FeatureParamInvalid,
        feature: PROTOCOL,
        detail: format!("{why}; check the address, and update the older of the two"),
    }
}

async fn say(ws: &mut LinkStream, hello: &ClientFrame) -> Result<(), SessionEnd> {
    let text = serde_json::to_string(hello).map_err(|error| lost(&error.to_string()))?;
    let sent = ws.send(Message::text(text)).await;
    sent.map_err(|error| lost(&error.to_string()))
}

/// What this broker can beyond what every broker must.
fn offers(features: &Features) -> Offers {
    Offers {
        blobs: features.contains_key(BLOB_RELAY),
        snapshots: features.contains_key(LOG_SNAPSHOT),
        uploads: features.contains_key(SNAPSHOT_UPLOAD),
        hand_over: features.contains_key(EFFECT_HAND_OVER),
    }
}

/// The proof of who we are, for the broker that it was made for and for no other: a signature that
/// another one asks for could be shown to ours.
fn sign(
    mesh: &MeshState,
    broker: Option<BrokerId>,
    nonce: &str,
) -> Result<Option<Signature>, SessionEnd> {
    let (Some(key), Some(pinned)) = (&mesh.identity.key, mesh.standing.pinned()) else {
        return Ok(None);
    };
    if broker != Some(pinned) {
        return Err(SessionEnd::Stranger(Barred::another_broker()));
    }
    let nonce = Nonce::parse(nonce).map_err(|_| lost("the broker's challenge is none"))?;
    let proof = HelloProof {
        broker: pinned,
        mesh: mesh.mesh.mesh,
        member: mesh.mesh.member,
        nonce,
    };
    Ok(Some(proof.sign(key)))
}

async fn close(ws: &mut LinkStream, refusal: &Refusal) {
    let frame = CloseFrame {
        code: WsCloseCode::from(refusal.code.number()),
        reason: refusal.close_reason().into(),
    };
    // The peer may be gone already; the refusal stands either way.
    let _ = ws.close(Some(frame)).await;
}

pub(crate) async fn next_frame(ws: &mut LinkStream) -> Result<ServerFrame, SessionEnd> {
    let text = next_text(ws).await?;
    let text = text.ok_or_else(|| lost("the broker sent something that is no text"))?;
    ServerFrame::parse(&text).map_err(|error| lost(&error.to_string()))
}

/// The text of the next frame; `None` where it is none.
async fn next_text(ws: &mut LinkStream) -> Result<Option<Utf8Bytes>, SessionEnd> {
    loop {
        match ws.next().await {
            None => return Err(lost("the broker closed the connection")),
            Some(Err(error)) => return Err(lost(&broken(&error))),
            Some(Ok(Message::Text(text))) => return Ok(Some(text)),
            Some(Ok(Message::Binary(_))) => return Ok(None),
            Some(Ok(Message::Close(frame))) => return Err(super::session::closed(frame.as_ref())),
            Some(Ok(_)) => {}
        }
    }
}

/// A connection that broke, in words for whoever reads the status; what the library says to programmers helps nobody there.
pub(super) fn broken(error: &tungstenite::Error) -> String {
    match error {
        tungstenite::Error::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the broker, or something on the way to it, cut the connection off".to_owned()
        }
        other => other.to_string(),
    }
}

pub(super) fn lost(why: &str) -> SessionEnd {
    SessionEnd::Lost {
        why: why.to_owned(),
        was_live: false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_tls_connection_that_is_cut_off_is_told_without_the_librarys_manual() {
        let words =
            "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/";
        let cut = tungstenite::Error::Io(Error::new(ErrorKind::UnexpectedEof, words));
        let told = broken(&cut);
        assert!(told.contains("cut the connection off"), "{told}");
        assert!(
            !told.contains("docs.rs") && !told.contains("close_notify"),
            "{told}"
        );
        let other = tungstenite::Error::Io(Error::new(ErrorKind::ConnectionReset, "reset"));
        assert!(broken(&other).contains("reset"));
    }
}
