//! Answers: JSON for what went well, problem details for what did not.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use heddle_core::error_code::{ErrorCode, ErrorKind};
use heddle_wire::problem::{PROBLEM_JSON, Problem};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// A refusal on its way out.
#[derive(Debug)]
pub(super) struct Refuse(pub(super) Problem);

impl From<Problem> for Refuse {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

pub(super) type Answered = Result<Response, Refuse>;

pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => with_body(status, "application/json", bytes),
        Err(error) => Refuse(Problem::new(ErrorCode::Internal, error.to_string())).into_response(),
    }
}

pub(super) fn ok<T: Serialize>(value: &T) -> Answered {
    Ok(json(StatusCode::OK, value))
}

pub(super) fn with_body(status: StatusCode, media: &'static str, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl IntoResponse for Refuse {
    fn into_response(self) -> Response {
        let problem = self.0;
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let bytes = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = with_body(status, PROBLEM_JSON, bytes);
        let is_busy = problem
            .known_code()
            .is_some_and(|code| code.kind() == ErrorKind::Busy);
        if is_busy {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
