//! The verbs. Adding one touches its file and one line here.

mod advanced;
mod agent;
mod block;
mod broker;
mod completions;
mod daemon;
mod doctor;
mod down;
pub mod effect;
mod explain;
mod export;
mod file;
mod forget;
mod grant;
mod guard;
mod inbox;
pub mod journal;
pub mod logs;
mod mcp;
mod mesh;
mod peers;
mod queue;
mod re_embed;
mod recall;
mod release;
mod remember;
mod reserve;
mod revoke;
mod send;
mod state;
mod status;
mod task;
mod topic;
mod up;
mod vector;

use clap::Subcommand;

use super::{CliError, Context};

macro_rules! verbs {
    ($($(#[$doc:meta])* $variant:ident => $module:ident,)*) => {
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[$doc])* $variant($module::Args),)*
        }

        impl Command {
            pub fn run(self, context: &Context) -> Result<(), CliError> {
                match self {
                    $(Self::$variant(args) => $module::run(context, args),)*
                }
            }
        }
    };
}

verbs! {
    /// Start the daemon with its embedded broker
    Up => up,
    /// Stop the daemon, gracefully
    Down => down,
    /// Say whether all is well, and what to do if not
    Status => status,
    /// Show the daemon's log
    Logs => logs,
    /// Send a message to @agent, @member/agent or #topic
    Send => send,
    /// Show the messages of an agent; reading does not consume them
    Inbox => inbox,
    /// Tell the whole story of an id: attempts, commit, deliveries, receipts
    Explain => explain,
    /// Create, post to, subscribe to and list topics
    Topic => topic,
    /// Push work to a queue, take it under a lease, say that it is done
    Queue => queue,
    /// Keep a value for later, under a key of your own
    Remember => remember,
    /// Show what was remembered, by key or by words
    Recall => recall,
    /// Forget what was remembered
    Forget => forget,
    /// Set, get, list and delete values that all agents of the mesh share
    State => state,
    /// Add tasks, claim them under a lease, say that they are done, see what is ready
    Task => task,
    /// Share files with the mesh, get, list and delete them
    File => file,
    /// Store texts and find them by nearness
    Vector => vector,
    /// Record and read this repository's plans, decisions, claims and runs
    Journal => journal,
    /// Dangerous effects that happen once: ask, approve, run, verify, make up for
    Effect => effect,
    /// Say which paths of this repository you work on; without a pattern, show what is reserved
    Reserve => reserve,
    /// Give reserved paths back
    Release => release,
    /// Refuse commits that touch paths reserved by another agent
    Guard => guard,
    /// Register and list this home's agents
    Agent => agent,
    /// Show who is in the mesh
    Peers => peers,
    /// Let a peer send this home more; without a peer, show from whom something is withheld
    Grant => grant,
    /// Let a peer send this home less
    Revoke => revoke,
    /// Let nothing of a peer reach this home
    Block => block,
    /// Serve an agent's MCP client: tools over standard input and output
    Mcp => mcp,
    /// Show, invite to and join meshes; the clock of their data and how their sync stands
    Mesh => mesh,
    /// Say what is wrong and mend it; make a backup of the store
    Doctor => doctor,
    /// Run a broker of its own, and its jobs by hand
    Broker => broker,
    /// Run the daemon for meshes hosted elsewhere; look after its outbox
    Daemon => daemon,
    /// Tools for those who look under the hood
    Advanced => advanced,
    /// Print shell completions
    Completions => completions,
}
