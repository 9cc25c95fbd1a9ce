//! `heddle peers`: who is in the mesh, and how fresh that knowledge is.

use clap::Args as ClapArgs;
use heddle_wire::ipc::PeerList;

use crate::cli::text::table;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let list = context.client().peers(&context.scope())?;
    context.print(&list, describe)
}

fn describe(list: &PeerList) -> String {
    let mut rows = vec![vec![
        "ADDRESS".to_owned(),
        "WHERE".to_owned(),
        "STATE".to_owned(),
    ]];
    for peer in &list.peers {
        let place = if peer.own { "this home" } else { "elsewhere" };
        let state = match peer.online {
            Some(true) => "online",
            Some(false) => "offline",
            None => "unknown",
        };
        rows.push(vec![
            peer.address.clone(),
            place.to_owned(),
            state.to_owned(),
        ]);
    }
    let as_of = list.as_of.as_deref().unwrap_or("never");
    let freshness = if list.stale {
        format!("as of {as_of}: the broker is out of reach\n")
    } else {
        "as of now\n".to_owned()
    };
    table(&rows) + &freshness
}
