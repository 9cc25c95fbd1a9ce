//! Reading a request: bounded in bytes and in time, never buffered beyond the limit (L-04).

use std::fmt::Display;

use axum::extract::{FromRequestParts, Path};
use bytes::{Bytes, BytesMut};
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::{
    BODY_TIMEOUT, PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, REQUEST_BYTES_MAX, UNREAD_BYTES_MAX,
    UNREAD_WAIT,
};
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use http_body::Body;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use super::parameters;
use super::reply::Refuse;

/// The body as a typed value.
pub(super) async fn read<T, B>(parts: &Parts, body: B) -> Result<T, Problem>
where
    T: DeserializeOwned,
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    from_wire::body(&bytes(parts, body).await?)
}

pub(super) async fn bytes<B>(parts: &Parts, body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let announced = parts
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    if announced.is_some_and(|length| length > UNREAD_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let mut body = body;
    match tokio::time::timeout(BODY_TIMEOUT, collect(&mut body)).await {
        Ok(Err(problem)) if problem.known_code() == Some(ErrorCode::PayloadTooLarge) => {
            // Read on for a little while, keeping nothing: a client that is cut off while it
            // writes would never see the answer that tells it why.
            let _ = tokio::time::timeout(UNREAD_WAIT, discard(&mut body)).await;
            Err(problem)
        }
        // Looked at when it was read, so that the client reads why.
        Ok(Ok(bytes)) if !bytes.is_empty() => refuse_coded(&parts.headers).map(|()| bytes),
        Ok(result) => result,
        Err(_) => Err(Problem::new(
            ErrorCode::RequestTimeout,
            "the body did not arrive in time",
        )),
    }
}

/// A coding that nobody undoes here must not be passed over: these are not the bytes that were meant.
fn refuse_coded(headers: &HeaderMap) -> Result<(), Problem> {
    let is_plain = |value: &HeaderValue| {
        let codings = value.to_str().unwrap_or("?").split(',').map(str::trim);
        codings
            .into_iter()
            .all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity"))
    };
    match headers.get_all(CONTENT_ENCODING).iter().find(|value| !is_plain(value)) {
        None => Ok(()),
        Some(value) => Err(Problem::new(
            ErrorCode::UnsupportedMediaType,
            format!("the body has the Content-Encoding {value:?}, and only identity is taken"),
        )
        .next("Send the body as it is, without Content-Encoding; nothing was changed and no id was consumed.")),
    }
}

async fn collect<B>(body: &mut B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let mut collected = Bytes::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| from_wire::invalid(format!("broken body: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if collected.len() + data.len() > REQUEST_BYTES_MAX {
            return Err(too_large());
        }
        if collected.is_empty() {
            // Nearly every body comes in one piece, and is not copied.
            collected = data;
        } else {
            let mut longer = BytesMut::from(collected);
            longer.extend_from_slice(&data);
            collected = longer.freeze();
        }
    }
    Ok(collected)
}

async fn discard<B: Body<Data = Bytes> + Unpin>(body: &mut B) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > UNREAD_BYTES_MAX {
            return;
        }
    }
}

fn too_large() -> Problem {
    Problem::new(
        ErrorCode::PayloadTooLarge,
        format!("the request body is larger than {REQUEST_BYTES_MAX} bytes"),
    )
}

/// The `{id}` of a route. What is no text is refused like everything else, with a problem.
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Refuse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refuse> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(_) => Err(Refuse(
                from_wire::invalid("the id in the path is not UTF-8")
                    .next("Write it percent-encoded, as the answer gave it."),
            )),
        }
    }
}

/// The query as a typed value; unknown parameters are refused.
pub(super) fn query<T: DeserializeOwned>(parts: &Parts) -> Result<T, Problem> {
    axum::extract::Query::<T>::try_from_uri(&parts.uri)
        .map(|query| query.0)
        .map_err(|error| parameters::refused(&parts.uri, &error.body_text()))
}

/// A route without parameters: whoever sends one expects something of it.
pub(super) fn no_query(parts: &Parts) -> Result<(), Problem> {
    refuse_query(&parts.uri)
}

pub(super) fn refuse_query(uri: &http::Uri) -> Result<(), Problem> {
    match uri.query() {
        None | Some("") => Ok(()),
        Some(_) => Err(from_wire::invalid("this route takes no parameters").next(
            "Leave the query out; GET /v1/openapi.json lists the parameters of every route.",
        )),
    }
}

/// The rows that a page may have: as many as asked for, if that is a number that makes sense.
pub(super) fn page_rows(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(PAGE_ROWS_DEFAULT),
        Some(limit) if (1..=PAGE_ROWS_MAX).contains(&limit) => Ok(limit),
        Some(limit) => Err(from_wire::invalid(format!(
            "limit is {limit}; a page has 1 to {PAGE_ROWS_MAX} rows"
        ))
        .next("Ask for fewer and go on with the cursor of the page.")),
    }
}
