//! A hook as a caller: a request that presents a hook's token is limited to what it was minted for
//! (IN-07), on both sockets.

use std::sync::Arc;

use heddle_core::envelope::Address;
use heddle_core::error_code::ErrorCode;
use heddle_wire::from_wire;
use heddle_wire::ipc::SendBody;
use heddle_wire::problem::Problem;
use http::request::Parts;
use http::{Method, Request};

use super::{Ipc, guard, routes};
use crate::hooks::{Asked, Grant, PREFIX};

/// The grant of a request that presents a hook's token; `None` for every other request.
pub(super) fn grant<B>(ipc: &Ipc, request: &Request<B>) -> Result<Option<Arc<Grant>>, Problem> {
    let (uri, tokens) = (request.uri(), &ipc.shared.hook_tokens);
    if tokens.occur_in(uri.path()) || uri.query().is_some_and(|query| tokens.occur_in(query)) {
        metrics::counter!("heddle_ipc_token_in_query_total").increment(1);
        return Err(from_wire::invalid("a token must not stand in the URL")
            .next("Send it in the Authorization header."));
    }
    let presented = guard::bearer(request.headers());
    let Some(presented) = presented.filter(|presented| presented.starts_with(PREFIX)) else {
        return Ok(None);
    };
    let Some(grant) = tokens.grant(presented, ipc.shared.clock.mono()) else {
        metrics::counter!("heddle_hook_tokens_refused_total").increment(1);
        let problem = guard::unauthorized("this hook's token has ended, or never was one");
        return Err(problem.next(
            "Use it only while the hook's process runs, and within five minutes of its start.",
        ));
    };
    let path = uri.path();
    let is_send = path == routes::SEND || path == routes::TOPIC_POST;
    if request.method() != Method::POST || !is_send {
        return Err(forbidden(
            "a hook's token is good for POST /v1/send and POST /v1/topic/post only".to_owned(),
        ));
    }
    Ok(Some(grant))
}

/// The send as the caller may make it: a hook's speaks in the mesh and for the mailbox of its event.
pub(super) fn limit(ipc: &Ipc, parts: &Parts, mut body: SendBody) -> Result<SendBody, Problem> {
    let Some(grant) = parts.extensions.get::<Arc<Grant>>() else {
        return Ok(body);
    };
    if body.mesh.is_none() {
        body.mesh = grant.mesh.as_ref().map(ToString::to_string);
    }
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let agent = match &body.agent {
        Some(name) => Some(routes::send::agent(ipc, Some(name))?),
        None => None,
    };
    let request = from_wire::send_request(&body)?;
    let mut mentions = Vec::with_capacity(request.mentions.len());
    for mention in &request.mentions {
        let address = Address::parse(mention).map_err(|e| from_wire::invalid(e.to_string()))?;
        mentions.push(mesh.resolve(&address)?);
    }
    // A name that resolves to nobody is nobody that a scope covers.
    let recipient = mesh.resolve(&request.to).unwrap_or_default();
    let asked = Asked {
        mesh: &mesh.mesh.name,
        agent: agent.as_ref(),
        to: &request.to,
        recipient: &recipient,
        mentions: &mentions,
        reply_to: &request.reply_to,
    };
    grant.decide(&asked).map_err(forbidden)?;
    if let (None, Some(message)) = (&body.agent, &grant.message) {
        body.agent = Some(message.agent.to_string());
    }
    Ok(body)
}

fn forbidden(why: String) -> Problem {
    metrics::counter!("heddle_hook_tokens_refused_total").increment(1);
    Problem::new(ErrorCode::ForbiddenScope, why)
}
