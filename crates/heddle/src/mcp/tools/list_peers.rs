//! `list_peers`: who can be written to, and whether they are there now.

use serde_json::{Value, json};

use super::{Done, Session, Tool, arguments};

pub(super) const TOOL: Tool = Tool {
    name: "list_peers",
    description: "Agents you can write to. `you` is your own address.",
    arguments: &[],
    required: &[],
    is_core: true,
    shows_mail: false,
    run,
};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {}

fn run(session: &Session, given: Value) -> Done {
    let Arguments {} = arguments(given)?;
    let list = session.client().peers(&session.query(&[]))?;
    let own = session.agent();
    let is_you = |agent: &str, is_own: bool| is_own && Some(agent) == own.as_deref();
    let you = list.peers.iter().find(|peer| is_you(&peer.agent, peer.own));
    let others = list
        .peers
        .iter()
        .filter(|peer| !is_you(&peer.agent, peer.own));
    let peers: Vec<Value> = others
        .map(|peer| json!({"address": peer.address, "online": peer.online}))
        .collect();
    Ok(json!({
        "you": you.map(|peer| peer.address.clone()),
        "peers": peers,
        "stale": list.stale,
        "as_of": list.as_of,
        "warnings": list.warnings,
    }))
}
