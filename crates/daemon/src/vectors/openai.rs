//! The provider `openai`: `POST URL/embeddings`, as OpenAI and many local servers answer it.
//!
//! Plain HTTP: for a server on this machine or a proxy on it. Redirects are not followed, so the key
//! goes nowhere but to the address that the config names.

use bytes::Bytes;
use heddle_core::limits::VECTOR_PROVIDER_BYTES_MAX;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;

use super::{ProviderError, VectorKey};
use crate::vector_config::VectorConfig;

/// Host and port.
type Address = (String, u16);

#[derive(Deserialize)]
struct Answer {
    data: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    embedding: Vec<f64>,
}

pub(super) async fn ask(
    config: &VectorConfig,
    key: Option<&VectorKey>,
    text: &str,
) -> Result<Vec<f64>, ProviderError> {
    match tokio::time::timeout(config.timeout(), exchange(config, key, text)).await {
        Ok(answer) => answer,
        Err(_) => Err(failed(format!(
            "did not answer within {} s",
            config.timeout().as_secs()
        ))),
    }
}

/// Without what the server said: it may repeat the key.
fn failed(why: impl std::fmt::Display) -> ProviderError {
    ProviderError(format!("the server of [vectors] url {why}"))
}

async fn exchange(
    config: &VectorConfig,
    key: Option<&VectorKey>,
    text: &str,
) -> Result<Vec<f64>, ProviderError> {
    let (request, authority) = request(config, key, text)?;
    let stream = TcpStream::connect(authority)
        .await
        .map_err(|error| failed(format!("cannot be reached: {error}")))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|_| failed("speaks no HTTP"))?;
    let answer = async {
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|_| failed("broke off"))?;
        if answer.status() != StatusCode::OK {
            return Err(failed(format!("answered {}", answer.status())));
        }
        let body = Limited::new(answer.into_body(), VECTOR_PROVIDER_BYTES_MAX);
        let body = body.collect().await;
        let body =
            body.map_err(|_| failed("broke off, or answered more than an embedding needs"))?;
        parse(&body.to_bytes())
    };
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // Ends when the server closes; what it sent before is still to be read.
        _ = connection => answer.await,
    }
}

fn request(
    config: &VectorConfig,
    key: Option<&VectorKey>,
    text: &str,
) -> Result<(Request<Full<Bytes>>, Address), ProviderError> {
    let url = config.url.as_deref().unwrap_or_default();
    let url: Uri = url.parse().map_err(|_| failed("is not an address"))?;
    let host = url.host().ok_or_else(|| failed("has no host"))?.to_owned();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let port = url.port_u16().unwrap_or(80);
    let path = format!("{}/embeddings", url.path().trim_end_matches('/'));
    let body = json!({"model": config.model_name(), "input": text, "encoding_format": "float"});
    let mut request = Request::post(path)
        .header(HOST, authority.rsplit('@').next().unwrap_or_default())
        .header(CONTENT_TYPE, "application/json");
    if let Some(key) = key {
        let value = http::HeaderValue::try_from(format!("Bearer {}", key.0));
        let mut value = value.map_err(|_| {
            ProviderError("the key of [vectors] holds what no header may hold".to_owned())
        })?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_string())));
    let request = request.map_err(|_| failed("is not an address"))?;
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    Ok((request, (host, port)))
}

fn parse(bytes: &[u8]) -> Result<Vec<f64>, ProviderError> {
    let answer: Answer = serde_json::from_slice(bytes)
        .map_err(|_| failed("did not answer as OpenAI would: data[0].embedding is missing"))?;
    match <[One; 1]>::try_from(answer.data) {
        Ok([one]) => Ok(one.embedding),
        Err(many) => Err(failed(format!(
            "gave {} embeddings for one text",
            many.len()
        ))),
    }
}
