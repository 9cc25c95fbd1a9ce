//! `heddle broker serve | migrate | sweep | orphan-check | epoch | members | invite`: a broker of its own, and its jobs by hand.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use heddle_broker::storage::PostgresOptions;
use heddle_core::membership::Role;
use heddle_core::names::MeshName;
use heddle_core::negotiate::ConnectionPolicy;

use crate::broker::{self, Place, TlsFiles};
use crate::cli::{CliError, Context, exit, parse_seconds, ui};

/// The tables of a broker that has no database elsewhere.
const BROKER_FILE: &str = "broker.db";

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a broker, apart from any daemon; --mesh is what its greeting tells homes to call their mesh
    Serve(Box<Serve>),
    /// Bring the tables of a database up to date, as a start would
    Migrate(Database),
    /// Forget ids whose time is over, delete old bodies, count traffic
    Sweep(Data),
    /// Look for rows that lack the rows that must stand beside them; exit 1 if there is one
    OrphanCheck(Data),
    /// Show who is enrolled: name, role, key, last seen
    Members(Data),
    /// Make a link by which others join the mesh (--mesh), which is made if there is none; for the operator
    Invite(Invite),
    /// Show the epoch of each mesh's history
    Epoch {
        #[command(flatten)]
        data: Data,
        /// Begin a new epoch in the mesh (--mesh) or in all of them, as after putting back an older copy
        #[arg(value_enum)]
        verb: Option<EpochVerb>,
    },
}

#[derive(Debug, ClapArgs)]
struct Invite {
    #[command(flatten)]
    data: Data,
    /// What whoever joins may do
    #[arg(long, value_enum, default_value = "member")]
    role: RoleName,
    /// How many may join by it
    #[arg(long, default_value_t = 1, value_name = "N")]
    uses: u32,
    /// How long it lasts: 7d, 12h, 30m, 45s
    #[arg(long, default_value = "7d", value_name = "TIME", value_parser = parse_seconds)]
    expires: u64,
    /// Where the broker is reached: wss://HOST:PORT/ [default: the port of the broker that serves --data]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    /// Invites others, grants, blocks and revokes
    Owner,
    /// Sends and receives
    Member,
}

#[derive(Debug, ClapArgs)]
struct Serve {
    /// Where to listen; beyond this machine with --tls-cert or --behind-proxy
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The folder of its config, tokens and port, and of its tables without --database
    /// [default with --database: `broker` in the home folder]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    #[command(flatten)]
    database: Database,
    /// Count budgets in this Redis, which brokers share: redis://HOST:PORT/, or rediss:// with TLS [env: HEDDLE_BROKER_LIMITER]
    #[arg(long, value_name = "URL")]
    limiter: Option<String>,
    /// Certificates to trust for the way to the limiter at rediss:// (PEM) [default: the machine's]
    #[arg(long, value_name = "FILE")]
    limiter_ca: Option<PathBuf>,
    /// What happens when one identity connects twice [default: that of config.toml, or prefer-newest]
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// Serve TLS with this certificate (PEM, with those that vouch for it)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Something in front of it does TLS: listen in clear beyond this machine
    #[arg(long, conflicts_with = "tls_cert")]
    behind_proxy: bool,
    /// The token that daemons present, shared by brokers [default: broker_token in the data folder]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The operator's token, shared by brokers behind one address [default: admin_token in the data folder]
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[allow(clippy::struct_field_names, reason = "each is the name of an option")]
struct Database {
    /// Keep the tables in this PostgreSQL: postgres://USER@HOST:PORT/NAME [env: HEDDLE_BROKER_DATABASE]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Certificates to trust for the way to the database (PEM) [default: the machine's]
    #[arg(long, value_name = "FILE")]
    database_ca: Option<PathBuf>,
    /// The schema that holds the tables [default: mesh]
    #[arg(long, value_name = "NAME")]
    database_schema: Option<String>,
}

impl Database {
    /// As it is named here, or in the environment. What is said of a database that nobody names was meant for one.
    fn options(self, context: &Context) -> Result<Option<PostgresOptions>, CliError> {
        let url = self
            .database
            .or_else(|| context.environment.broker_database.clone());
        let Some(url) = url else {
            let options = [
                ("--database-ca", self.database_ca.is_some()),
                ("--database-schema", self.database_schema.is_some()),
            ];
            let said = options.into_iter().find(|(_, is_said)| *is_said);
            return said.map_or(Ok(None), |(option, _)| Err(of_no_database(option)));
        };
        Ok(Some(PostgresOptions {
            schema: self
                .database_schema
                .unwrap_or_else(|| PostgresOptions::SCHEMA.to_owned()),
            ca_file: self.database_ca,
            ..PostgresOptions::new(url)
        }))
    }
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
    #[command(flatten)]
    database: Database,
}

impl Data {
    fn folder(&self, context: &Context) -> PathBuf {
        self.data.clone().unwrap_or_else(|| context.home.clone())
    }

    /// As `broker serve` takes them: a database with a folder beside it for the tokens. Only a folder that has tables of its
    /// own counts for more than a database that is named nowhere but in the environment, and then that is said.
    fn place(self, context: &Context) -> Result<Place, CliError> {
        let folder = self.folder(context);
        let is_named = self.data.is_some() && self.database.database.is_none();
        let has_tables = is_named && folder.join(BROKER_FILE).exists();
        Ok(match self.database.options(context)? {
            Some(database) if !has_tables => Place::Database(database),
            Some(_) => {
                ui::note(&format!(
                    "note: this is about {}, not about HEDDLE_BROKER_DATABASE; leave --data out, or name --database, to mean that",
                    folder.join(BROKER_FILE).display()
                ));
                Place::Folder(folder)
            }
            None => Place::Folder(folder),
        })
    }
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
    match args.verb {
        Verb::Serve(serve) => broker::serve(context, &serve_options(context, *serve)?),
        Verb::Migrate(database) => {
            let options = database.options(context)?.ok_or_else(no_database)?;
            broker::migrate(context, &options)
        }
        Verb::Sweep(data) => {
            let folder = data.folder(context);
            broker::sweep(context, &data.place(context)?, &folder)
        }
        Verb::Invite(args) => invite(context, args),
        Verb::Members(data) => broker::members(context, &data.place(context)?),
        Verb::OrphanCheck(data) => broker::orphan_check(context, &data.place(context)?),
        Verb::Epoch { data, verb } => broker::epoch(context, &data.place(context)?, verb.is_some()),
    }
}

fn invite(context: &Context, args: Invite) -> Result<(), CliError> {
    let place = args.data.place(context)?;
    let Some(mesh) = context.mesh.as_deref() else {
        return Err(CliError::new(exit::USAGE, "which mesh?").next(
            "Name it: `heddle --mesh team broker invite …`; one that is not there yet is made.",
        ));
    };
    let mesh =
        MeshName::parse(mesh).map_err(|error| CliError::new(exit::USAGE, error.to_string()))?;
    let url = args.url.or_else(|| broker::local_url(&place));
    let url = url.ok_or_else(|| {
        CliError::new(exit::USAGE, "where the broker is reached is not known here")
            .next("Add --url wss://HOST:PORT/ as those who join reach it.")
    })?;
    let spec = broker::InviteSpec {
        mesh,
        role: match args.role {
            RoleName::Owner => Role::Owner,
            RoleName::Member => Role::Member,
        },
        uses_max: args.uses,
        life: Duration::from_secs(args.expires),
        url,
    };
    broker::invite(context, &place, spec)
}

fn serve_options(context: &Context, serve: Serve) -> Result<broker::ServeOptions, CliError> {
    let database = serve.database.options(context)?;
    let default = database.as_ref().map(|_| context.home.join("broker"));
    let data = serve.data.or(default).ok_or_else(|| {
        CliError::new(exit::USAGE, "a broker needs a folder or a database")
            .next("Name one: --data FOLDER, or --database postgres://USER@HOST:PORT/NAME.")
    })?;
    let limiter = serve.limiter;
    Ok(broker::ServeOptions {
        listen: serve.listen,
        data,
        policy: serve.policy.map(ConnectionPolicy::from),
        database,
        limiter: limiter.or_else(|| context.environment.broker_limiter.clone()),
        limiter_ca: serve.limiter_ca,
        tls: serve
            .tls_cert
            .zip(serve.tls_key)
            .map(|(cert, key)| TlsFiles { cert, key }),
        behind_proxy: serve.behind_proxy,
        token_file: serve.token_file,
        admin_token_file: serve.admin_token_file,
    })
}

fn of_no_database(option: &str) -> CliError {
    CliError::new(
        exit::USAGE,
        format!("{option} is about a database, and none is named"),
    )
    .next("Name it with --database or HEDDLE_BROKER_DATABASE, or leave the option out.")
}

fn no_database() -> CliError {
    CliError::new(exit::USAGE, "no database is named")
        .next("Add --database postgres://USER@HOST:PORT/NAME, or set HEDDLE_BROKER_DATABASE.")
}
