//! `heddle grant [PEER [CAPABILITY…]]`: what a peer may send to this home; without a peer, from whom something is withheld.

use clap::{Args as ClapArgs, ValueEnum};
use heddle_wire::ipc::{PeerGrantBody, PeerGrantList, PeerGrantView};

use crate::cli::keyed::Keyed;
use crate::cli::text::table;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A member's name or id; without one, show from whom something is withheld
    peer: Option<String>,
    /// What it may; without any, all of it
    #[arg(value_enum, requires = "peer")]
    capabilities: Vec<Capability>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Capability {
    /// Write to mailboxes of this home
    Dm,
    /// Be heard here in topics
    Topic,
}

impl Capability {
    fn as_str(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Topic => "topic",
        }
    }
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let Some(peer) = args.peer else {
        let query: Vec<_> = context.mesh_scope().into_iter().collect();
        let list = context.client().peer_grants(&query)?;
        return context.print(&list, describe_all);
    };
    change(context, "grant", (peer, args.keyed), &args.capabilities)
}

/// The three verbs differ in a word.
pub(super) fn change(
    context: &Context,
    verb: &str,
    (peer, keyed): (String, Keyed),
    capabilities: &[Capability],
) -> Result<(), CliError> {
    let body = PeerGrantBody {
        peer,
        capabilities: capabilities
            .iter()
            .map(|one| one.as_str().to_owned())
            .collect(),
        mesh: context.mesh.clone(),
    };
    let client = context.client().under(keyed.key);
    let answer = client.peer_grant(verb, &body)?;
    context.print(&answer, describe)
}

fn may(view: &PeerGrantView) -> String {
    match view.capabilities.as_slice() {
        [] => "nothing".to_owned(),
        some => some.join(", "),
    }
}

fn describe(view: &PeerGrantView) -> String {
    let PeerGrantView {
        peer,
        mesh,
        blocked,
        changed,
        ..
    } = view;
    let was = if *changed { "" } else { " (as before)" };
    let next = if *blocked {
        format!(
            "It is not told, and what it sends meanwhile does not come later. \
             `heddle --mesh {mesh} grant {peer}` lifts that.\n"
        )
    } else {
        String::new()
    };
    format!(
        "@{peer} may send this home in {mesh}: {}{was}\n{next}",
        may(view)
    )
}

fn describe_all(list: &PeerGrantList) -> String {
    if list.grants.is_empty() {
        let mesh = &list.mesh;
        return format!(
            "Everybody in {mesh} may send this home everything. `heddle block PEER` ends that for one.\n"
        );
    }
    let mut rows = vec![vec!["PEER".to_owned(), "MAY SEND".to_owned()]];
    for one in &list.grants {
        rows.push(vec![format!("@{}", one.peer), may(one)]);
    }
    table(&rows) + "everybody else may send everything\n"
}
