//! `heddle broker serve | sweep | orphan-check | epoch | members`: a broker of its own, and its jobs by hand.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use heddle_core::negotiate::ConnectionPolicy;

use crate::broker;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a broker on this machine, apart from any daemon; --mesh names the mesh it makes
    Serve {
        /// Where to listen; a loopback address
        #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
        listen: SocketAddr,
        /// The folder of its database, token and port
        #[arg(long, value_name = "FOLDER")]
        data: PathBuf,
        /// What happens when one identity connects twice [default: that of config.toml, or prefer-newest]
        #[arg(long, value_enum)]
        policy: Option<Policy>,
    },
    /// Forget ids whose time is over, delete old bodies, count traffic
    Sweep(Data),
    /// Look for rows that lack the rows that must stand beside them; exit 1 if there is one
    OrphanCheck(Data),
    /// Show who is enrolled: name, role, key, last seen
    Members(Data),
    /// Show the epoch of each mesh's history
    Epoch {
        #[command(flatten)]
        data: Data,
        /// Begin a new epoch in the mesh (--mesh) or in all of them, as after putting back an older copy
        #[arg(value_enum)]
        verb: Option<EpochVerb>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EpochVerb {
    Bump,
}

#[derive(Debug, ClapArgs)]
struct Data {
    /// The folder with broker.db [default: the home folder]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    #[value(alias = "prefer_newest")]
    PreferNewest,
    #[value(alias = "prefer_oldest")]
    PreferOldest,
    #[value(alias = "allow_concurrent")]
    AllowConcurrent,
}

impl From<Policy> for ConnectionPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::PreferNewest => Self::PreferNewest,
            Policy::PreferOldest => Self::PreferOldest,
            Policy::AllowConcurrent => Self::AllowConcurrent,
        }
    }
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let folder = |data: Data| data.data.unwrap_or_else(|| context.home.clone());
    match args.verb {
        Verb::Serve {
            listen,
            data,
            policy,
        } => {
            let options = broker::ServeOptions {
                listen,
                data,
                policy: policy.map(ConnectionPolicy::from),
            };
            broker::serve(context, &options)
        }
        Verb::Sweep(data) => broker::sweep(context, &folder(data)),
        Verb::Members(data) => broker::members(context, &folder(data)),
        Verb::OrphanCheck(data) => broker::orphan_check(context, &folder(data)),
        Verb::Epoch { data, verb } => broker::epoch(context, &folder(data), verb.is_some()),
    }
}
