//! How a connection is made: over TCP to a URL, or however the caller likes (the embedded broker).

use std::future::Future;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use heddle_core::ids::HistoryId;
use heddle_core::limits::{FRAME_BYTES_MAX, HELLO_TIMEOUT};
use heddle_core::membership::PublicKey;
use heddle_core::redact::redact;
use heddle_store::{Mesh, open_plain};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Both directions of a byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub type LinkStream = WebSocketStream<Box<dyn Duplex>>;

#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct ConnectError {
    why: String,
    /// What this home presents is wrong: only a person can change that, at this end.
    pub is_ours: bool,
}

impl ConnectError {
    /// The way, or the other end: asking again may help.
    pub fn passing(why: String) -> Self {
        let is_ours = false;
        Self { why, is_ours }
    }

    fn ours(why: String) -> Self {
        let is_ours = true;
        Self { why, is_ours }
    }
}

/// A further mesh of this home, to be hosted by this home's own broker.
#[derive(Debug, Clone)]
pub struct Hosted {
    pub mesh: Mesh,
    /// The public half of this home's key in it.
    pub key: PublicKey,
    /// The newest place of its history that this home has seen.
    pub seen: HistoryId,
}

/// How such a mesh is reached, once it is hosted.
pub type Hosting<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn Connector>, ConnectError>> + Send + 'a>>;

pub type Bounding<'a> = Pin<Box<dyn Future<Output = Result<(), ConnectError>> + Send + 'a>>;

pub type Asking<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

pub type Looking<'a> = Pin<Box<dyn Future<Output = Result<bool, ConnectError>> + Send + 'a>>;

/// Makes a fresh connection each time it is asked. Must not hang: it bounds its own waits.
pub trait Connector: Send + Sync + 'static {
    fn connect(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LinkStream, ConnectError>> + Send + '_>>;

    /// What to call the broker in status: `embedded`, or its URL.
    fn label(&self) -> String;

    /// The URL at which others reach the same broker, if they do.
    fn reach(&self) -> Option<String> {
        None
    }

    /// What keeps others from reaching it, in words for its operator.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// How many rows of a broker of this home's own did not fit together when it last looked.
    fn orphans(&self) -> usize {
        0
    }

    /// Whether another process keeps a broker of this home's own from writing. `None` where that cannot be known.
    fn is_held(&self) -> Option<Asking<'_>> {
        None
    }

    /// Whether the broker is this home's own, and hosts what it is told to.
    fn hosts(&self) -> bool {
        false
    }

    /// Whether a broker of this home's own holds something for this home that it has not given yet. `None` where
    /// that cannot be known.
    fn holds_any(&self) -> Option<Looking<'_>> {
        None
    }

    /// The disk that this home lies on has become short, or is not any more: a broker of this home's own keeps its
    /// file within `growth` from now on, and its log as short as `free` bytes want it.
    fn bound(&self, _growth: Option<u64>, _free: u64) -> Option<Bounding<'_>> {
        None
    }

    /// Has the same broker host a further mesh; the same again changes nothing. `None` where the broker is
    /// not this home's own.
    fn host(&self, _mesh: Hosted) -> Option<Hosting<'_>> {
        None
    }
}

/// Frames are bounded in both directions, and so is what waits to be written.
pub fn ws_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX))
        .max_write_buffer_size(2 * FRAME_BYTES_MAX)
}

/// A token file is one line.
const TOKEN_BYTES_MAX: u64 = 1024;

/// Why no byte goes to a broker.
#[derive(Debug)]
pub(super) enum Unreached {
    /// The way, or the other end: asking again may help.
    Passing(String),
    /// What this home trusts: only a person can change that, at this end.
    Ours(String),
}

/// How bytes go to a broker.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way<'a> {
    Clear,
    /// With the authorities in this file, instead of the machine's.
    Tls(Option<&'a Path>),
}

impl Way<'_> {
    pub(super) fn is_tls(self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

/// A broker at `ws://host:port/…`, or at `wss://` by TLS.
#[derive(Debug, Clone)]
pub struct UrlConnector {
    url: String,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    /// The same without user and password: what logs, errors and the status show (XC-01).
    shown: String,
}

impl UrlConnector {
    pub fn new(url: impl Into<String>) -> Self {
        let url = url.into();
        let shown = redact(&url).into_owned();
        Self {
            url,
            shown,
            token_file: None,
            ca_file: None,
        }
    }

    /// Certificates of authorities that decide whether it is the right one, instead of the machine's; as they are at the
    /// time of each connection.
    #[must_use]
    pub fn with_ca_file(self, ca_file: Option<PathBuf>) -> Self {
        Self { ca_file, ..self }
    }

    /// The token in this file is presented, as it is at the time of each connection.
    #[must_use]
    pub fn with_token_file(self, token_file: Option<PathBuf>) -> Self {
        Self { token_file, ..self }
    }

    /// The header that presents the token.
    fn authorization(&self, host: &str, is_tls: bool) -> Result<Option<HeaderValue>, String> {
        match &self.token_file {
            Some(path) => bearer(path, host, is_tls).map(Some),
            None => Ok(None),
        }
    }

    async fn open(&self) -> Result<LinkStream, ConnectError> {
        let failed = |why: String| ConnectError::passing(format!("{}: {why}", self.shown));
        let mut request = self
            .url
            .as_str()
            .into_client_request()
            .map_err(|error| failed(error.to_string()))?;
        let uri = request.uri();
        let way = match uri.scheme_str() {
            Some("ws") => Way::Clear,
            Some("wss") => Way::Tls(self.ca_file.as_deref()),
            _ => {
                let why = format!("{}: only ws:// and wss:// are supported", self.shown);
                return Err(ConnectError::ours(why));
            }
        };
        let host = uri.host().unwrap_or_default().to_owned();
        let host = host.trim_matches(['[', ']']);
        let port = uri
            .port_u16()
            .unwrap_or(if way.is_tls() { 443 } else { 80 });
        let own = |why: String| ConnectError::ours(format!("{}: {why}", self.shown));
        if let Some(header) = self.authorization(host, way.is_tls()).map_err(own)? {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let stream = reach(host, port, way).await;
        let stream = stream.map_err(|why| match why {
            Unreached::Passing(why) => failed(why),
            Unreached::Ours(why) => own(why),
        })?;
        let (stream, _) =
            tokio_tungstenite::client_async_with_config(request, stream, Some(ws_config()))
                .await
                .map_err(|error| match (token_refusal(&error), &error) {
                    (Some(why), _) => own(why),
                    (None, tungstenite::Error::Http(response)) if response.status() == 503 => {
                        failed("it takes no further connection now (503)".to_owned())
                    }
                    (None, _) => failed(error.to_string()),
                })?;
        Ok(stream)
    }
}

/// The header that presents the token in a file. In clear it goes to this machine only.
pub(super) fn bearer(path: &Path, host: &str, is_tls: bool) -> Result<HeaderValue, String> {
    if !is_tls && !is_here(host) {
        let why = "in clear, a token is only sent to a broker on this machine; use wss://";
        return Err(why.to_owned());
    }
    let unreadable = |why: String| format!("token_file {}: {why}", path.display());
    let mut text = String::new();
    open_plain(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| unreadable(error.to_string()))?;
    let mut header = HeaderValue::try_from(format!("Bearer {}", text.trim()))
        .map_err(|_| unreadable("not a token".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// A byte stream to a broker.
pub(super) async fn reach(
    host: &str,
    port: u16,
    way: Way<'_>,
) -> Result<Box<dyn Duplex>, Unreached> {
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|error| Unreached::Passing(error.to_string()))?;
    // A batch is one write; waiting to fill a packet only adds delay.
    let _ = stream.set_nodelay(true);
    Ok(match way {
        Way::Clear => Box::new(stream),
        Way::Tls(ca) => Box::new(super::tls::connect(host, ca, stream).await?),
    })
}

/// Whether this host is this machine.
pub(crate) fn is_here(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// A broker that knows another token than ours.
fn token_refusal(error: &tungstenite::Error) -> Option<String> {
    match error {
        tungstenite::Error::Http(response) if response.status() == 401 => Some(
            "the broker refuses the token; point token_file, beside this url in config.toml, at broker_token in its data folder".to_owned(),
        ),
        _ => None,
    }
}

impl Connector for UrlConnector {
    fn connect(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LinkStream, ConnectError>> + Send + '_>> {
        Box::pin(async {
            match tokio::time::timeout(HELLO_TIMEOUT, self.open()).await {
                Ok(result) => result,
                Err(_) => Err(ConnectError::passing(format!("{}: no answer", self.shown))),
            }
        })
    }

    fn label(&self) -> String {
        self.shown.clone()
    }

    /// Not with a user or a password in it: that is for this home alone.
    fn reach(&self) -> Option<String> {
        (self.url == self.shown).then(|| self.url.clone())
    }
}
