//! Registering a mesh at a team broker: one request over HTTP, before any WebSocket (local-first §9, phase 2).

use std::path::Path;

use bytes::Bytes;
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::{HELLO_TIMEOUT, REQUEST_BYTES_MAX};
use heddle_core::redact::redact;
use heddle_wire::broker::{RegisterMeshAnswer, RegisterMeshBody};
use heddle_wire::problem::Problem;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;

use super::connector::{Unreached, Way, bearer, reach};

/// Where a mesh is registered, and by whose leave.
pub(crate) struct Registration<'a> {
    /// `ws://` or `wss://`.
    pub(crate) url: &'a str,
    pub(crate) token_file: Option<&'a Path>,
    /// Whose word counts for it, instead of the machine's.
    pub(crate) ca_file: Option<&'a Path>,
}

impl Registration<'_> {
    pub(crate) async fn send(
        &self,
        body: &RegisterMeshBody,
    ) -> Result<RegisterMeshAnswer, Problem> {
        match tokio::time::timeout(HELLO_TIMEOUT, self.exchange(body)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unreachable("it does not answer in time")),
        }
    }

    fn unreachable(&self, why: &str) -> Problem {
        let detail = format!("{} cannot be reached: {why}", redact(self.url));
        Problem::new(ErrorCode::NotConnected, detail).next(
            "Start that broker, or correct what is said of it or its address, and publish again; nothing was changed.",
        )
    }

    fn untrusted(&self, why: &str) -> Problem {
        let detail = format!("{} is not trusted: {why}", redact(self.url));
        Problem::new(ErrorCode::InvalidRequest, detail).next(
            "Publish again with --ca FILE, the certificate (PEM) of the authority that signed the broker's; nothing was changed.",
        )
    }

    async fn exchange(&self, body: &RegisterMeshBody) -> Result<RegisterMeshAnswer, Problem> {
        let failed = |why: String| self.unreachable(&why);
        let uri: Uri = self
            .url
            .parse()
            .map_err(|_| failed("it is no address".to_owned()))?;
        let way = match uri.scheme_str() {
            Some("wss") => Way::Tls(self.ca_file),
            _ => Way::Clear,
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri
            .port_u16()
            .unwrap_or(if way.is_tls() { 443 } else { 80 });
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::post("/api/my/meshes")
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(path) = self.token_file {
            let header = bearer(path, host, way.is_tls()).map_err(|why| {
                Problem::new(ErrorCode::InvalidRequest, why).next(
                    "Point --token-file at a copy of broker_token in the broker's data folder.",
                )
            })?;
            request = request.header(AUTHORIZATION, header);
        }
        let text = serde_json::to_string(body).map_err(|error| failed(error.to_string()))?;
        let request = request.body(Full::new(Bytes::from(text)));
        let request = request.map_err(|error| failed(error.to_string()))?;
        let stream = reach(host, port, way).await;
        let stream = stream.map_err(|why| match why {
            Unreached::Passing(why) => failed(why),
            Unreached::Ours(why) => self.untrusted(&why),
        })?;
        let (status, bytes) = talk(stream, request).await.map_err(failed)?;
        let answer = read(status, &bytes).ok_or_else(|| {
            failed(format!(
                "what answers there is no team broker of this version ({status})"
            ))
        })?;
        answer.map_err(|problem| match self.token_file {
            Some(path) if problem.known_code() == Some(ErrorCode::Unauthorized) => {
                let path = path.display();
                Problem::new(ErrorCode::Unauthorized, format!("that broker does not take the token in {path}")).next(
                    "Give --token-file a fresh copy of broker_token of that broker's data folder, and publish again; nothing was changed.",
                )
            }
            _ => problem,
        })
    }
}

async fn talk(
    stream: Box<dyn super::Duplex>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), String> {
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), REQUEST_BYTES_MAX);
        let body = body.collect().await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // Ends when the server closes; what it sent before is still to be read.
        _ = connection => answer.await,
    }
}

/// `None` for an answer that is none of ours.
fn read(status: StatusCode, bytes: &[u8]) -> Option<Result<RegisterMeshAnswer, Problem>> {
    if status == StatusCode::OK {
        return serde_json::from_slice(bytes).ok().map(Ok);
    }
    let problem: Problem = serde_json::from_slice(bytes).ok()?;
    let code = ErrorCode::parse(&problem.code)?;
    let told = Problem::new(code, problem.detail);
    Some(Err(match code {
        ErrorCode::Unauthorized => told.next(
            "Add --token-file with a copy of broker_token of that broker's data folder, and publish again; nothing was changed.",
        ),
        _ => told,
    }))
}
