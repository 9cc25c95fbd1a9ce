//! What a broker says when it is up: where it listens, who else can reach what it stands on, what to put into a home.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;

use heddle_broker::storage::AnyStorage;
use serde::Serialize;

use super::engine::Engine as _;
use super::limiter::open_limiter;
use super::pages::Pages;
use super::serve::ServeOptions;

#[derive(Serialize)]
pub struct Ready {
    pub listen: String,
    pub data: PathBuf,
    /// What daemons of meshes without keys present.
    pub token_file: PathBuf,
    pub storage: &'static str,
    pub limiter: &'static str,
    pub tls: bool,
    pub pid: u32,
    /// Who else can reach what it stands on (T-32), a certificate that nobody takes now, and what of it does not answer yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Cow<'static, str>>,
    /// What homes are told to call the mesh: the name that was given.
    #[serde(skip)]
    pub mesh: String,
    /// Where homes reach it, as far as it knows.
    #[serde(skip)]
    pub reached: String,
}

/// An address that stands for all of this machine's is nobody's to connect to; nor is that of a port behind a proxy.
pub fn reached(listen: SocketAddr, options: &ServeOptions) -> String {
    if options.behind_proxy {
        return "wss://HOST-OF-THE-PROXY/".to_owned();
    }
    let scheme = if options.tls.is_some() { "wss" } else { "ws" };
    if listen.ip().is_unspecified() {
        format!("{scheme}://HOST:{}/", listen.port())
    } else {
        format!("{scheme}://{listen}/")
    }
}

/// T-32: also in the log, because of a broker that a machine starts nobody reads the greeting.
pub async fn warnings(
    (storage, about_tls): (&AnyStorage, Vec<String>),
    options: &ServeOptions,
    pages: Option<&Pages>,
) -> Vec<Cow<'static, str>> {
    let mut warnings: Vec<Cow<'static, str>> =
        storage.exposed().into_iter().map(Cow::Borrowed).collect();
    warnings.extend(about_tls.into_iter().map(Cow::Owned));
    if let Some(url) = options.limiter.as_deref() {
        warnings.extend(open_limiter(url).into_iter().map(Cow::Borrowed));
    }
    // It comes back by itself, or somebody has named it wrongly: the one who starts it can tell.
    for (what, why) in waiting(pages).await {
        warnings.push(Cow::Owned(format!(
            "{what}: {why}; until it answers, what is sent waits"
        )));
    }
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    warnings
}

async fn waiting(pages: Option<&Pages>) -> Vec<(&'static str, String)> {
    match pages {
        Some(pages) => pages.waiting().await,
        None => Vec::new(),
    }
}

pub fn greeting(ready: &Ready) -> String {
    let warned: Vec<String> = ready
        .warnings
        .iter()
        .map(|w| format!("  ! {w}\n"))
        .collect();
    format!(
        "the broker is up (process {pid})\n\
         \x20 listen  {scheme}://{listen}/\n\
         \x20 data    {data}\n\
         {warned}\
         \n\
         To share a mesh, put into config.toml of each home, with a `member` of its own, then\n\
         `heddle up` there and `heddle --mesh {mesh} peers`:\n\
         \x20 [[mesh]]\n\
         \x20 name = \"{mesh}\"\n\
         \x20 member = \"YOUR NAME\"\n\
         \x20 url = \"{reached}\"\n\
         \x20 token_file = \"{token}\"\n\
         \n\
         Ctrl-C stops it.\n",
        pid = ready.pid,
        mesh = ready.mesh,
        scheme = if ready.tls { "wss" } else { "ws" },
        listen = ready.listen,
        reached = ready.reached,
        data = ready.data.display(),
        token = ready.token_file.display(),
        warned = warned.concat(),
    )
}
