//! How a connection is made: over TCP to a URL, or however the caller likes (the embedded broker).

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use heddle_core::limits::{FRAME_BYTES_MAX, HELLO_TIMEOUT};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
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

/// A token file larger than this is no token.
const TOKEN_BYTES_MAX: u64 = 4096;

/// A broker at `ws://host:port/…`.
#[derive(Debug, Clone)]
pub struct UrlConnector {
    url: String,
    token_file: Option<PathBuf>,
}

impl UrlConnector {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token_file: None,
        }
    }

    /// The file is read anew for every connection, so a token may be rotated.
    #[must_use]
    pub fn with_token_file(mut self, token_file: Option<PathBuf>) -> Self {
        self.token_file = token_file;
        self
    }

    /// The header that carries the token. Its words never hold the token itself.
    async fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let failed = |why: &str| format!("token_file {}: {why}", path.display());
        let read = async {
            let file = tokio::fs::File::open(path).await?;
            let mut text = String::new();
            file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).await?;
            std::io::Result::Ok(text)
        };
        let text = read.await.map_err(|error| failed(&error.to_string()))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(failed("the file is empty"));
        }
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| failed("it does not hold a token"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    async fn open(&self) -> Result<LinkStream, ConnectError> {
        let failed = |why: String| ConnectError(format!("{}: {why}", self.url));
        let mut request = self
            .url
            .as_str()
            .into_client_request()
            .map_err(|error| failed(error.to_string()))?;
        if let Some(value) = self.authorization().await.map_err(failed)? {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
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
                Err(_) => Err(ConnectError(format!("{}: no answer", self.url))),
            }
        })
    }

    fn label(&self) -> String {
        self.url.clone()
    }
}
