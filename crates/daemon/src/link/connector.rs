//! How a connection is made: over TCP to a URL, or however the caller likes (the embedded broker).

use std::future::Future;
use std::pin::Pin;

use heddle_core::limits::{FRAME_BYTES_MAX, HELLO_TIMEOUT};
use heddle_core::redact::redact;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Both directions of a byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub type LinkStream = WebSocketStream<Box<dyn Duplex>>;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// Makes a fresh connection each time it is asked. Must not hang: it bounds its own waits.
pub trait Connector: Send + Sync + 'static {
    fn connect(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LinkStream, ConnectError>> + Send + '_>>;

    /// What to call the broker in status: `embedded`, or its URL.
    fn label(&self) -> String;
}

/// Frames are bounded in both directions, and so is what waits to be written.
pub fn ws_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX))
        .max_write_buffer_size(2 * FRAME_BYTES_MAX)
}

/// A broker at `ws://host:port/…`.
#[derive(Debug, Clone)]
pub struct UrlConnector {
    url: String,
    /// The same without user and password: what logs, errors and the status show (XC-01).
    shown: String,
}

impl UrlConnector {
    pub fn new(url: impl Into<String>) -> Self {
        let url = url.into();
        let shown = redact(&url).into_owned();
        Self { url, shown }
    }

    async fn open(&self) -> Result<LinkStream, ConnectError> {
        let failed = |why: String| ConnectError(format!("{}: {why}", self.shown));
        let request = self
            .url
            .as_str()
            .into_client_request()
            .map_err(|error| failed(error.to_string()))?;
        let uri = request.uri();
        if uri.scheme_str() != Some("ws") {
            return Err(failed("only ws:// is supported".to_owned()));
        }
        let host = uri.host().unwrap_or_default().to_owned();
        let port = uri.port_u16().unwrap_or(80);
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port))
            .await
            .map_err(|error| failed(error.to_string()))?;
        // A batch is one write; waiting to fill a packet only adds delay.
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Duplex> = Box::new(stream);
        let (stream, _) =
            tokio_tungstenite::client_async_with_config(request, stream, Some(ws_config()))
                .await
                .map_err(|error| failed(error.to_string()))?;
        Ok(stream)
    }
}

impl Connector for UrlConnector {
    fn connect(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LinkStream, ConnectError>> + Send + '_>> {
        Box::pin(async {
            match tokio::time::timeout(HELLO_TIMEOUT, self.open()).await {
                Ok(result) => result,
                Err(_) => Err(ConnectError(format!("{}: no answer", self.shown))),
            }
        })
    }

    fn label(&self) -> String {
        self.shown.clone()
    }
}
