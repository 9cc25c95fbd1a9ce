//! Who may come in over TCP: local names only, no foreign pages, the right token.
//!
//! Runs before any route, on every route and method, none exempt (T-01 to T-05). The Unix socket
//! is guarded by its folder's mode and the peer's user id instead.

use heddle_core::error_code::ErrorCode;
use heddle_wire::problem::Problem;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Method, Request, Uri};

use crate::token::LocalToken;

/// Everything but the token.
pub(super) fn check_place<B>(
    request: &Request<B>,
    token: &LocalToken,
    port: u16,
) -> Result<(), Problem> {
    check_host(request.headers(), request.uri(), port)?;
    check_origin(request, port)?;
    check_url(request.uri(), token)
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(ErrorCode::ForbiddenOrigin, detail)
}

/// Exactly one `Host`, and it names this machine: a rebound DNS name does not.
fn check_host(headers: &HeaderMap, uri: &Uri, port: u16) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(forbidden("a request needs exactly one Host header"));
    };
    let is_local = host.to_str().is_ok_and(|host| is_local_host(host, port));
    let target_is_local = uri
        .authority()
        .is_none_or(|authority| is_local_host(authority.as_str(), port));
    if is_local && target_is_local {
        Ok(())
    } else {
        Err(forbidden("the Host header does not name this machine"))
    }
}

fn is_local_host(host: &str, port: u16) -> bool {
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| {
        host.get(..name.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(name))
            && match &host[name.len()..] {
                "" => true,
                rest => rest.strip_prefix(':') == Some(port.to_string().as_str()),
            }
    })
}

/// No page of another origin, no preflight, whatever it asks for.
fn check_origin<B>(request: &Request<B>, port: u16) -> Result<(), Problem> {
    if request.method() == Method::OPTIONS {
        return Err(forbidden("there is no cross-origin access here"));
    }
    for origin in request.headers().get_all(ORIGIN) {
        let is_own = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(|host| host.contains(':') && is_local_host(host, port));
        if !is_own {
            return Err(forbidden("the Origin header names another site"));
        }
    }
    Ok(())
}

/// A token in a URL ends up in logs and histories, and in the words of a refusal: refused on both
/// sockets, even where it is right.
pub(super) fn check_url(uri: &Uri, token: &LocalToken) -> Result<(), Problem> {
    let query = uri.query().unwrap_or_default();
    let names_one = query
        .split('&')
        .filter_map(|pair| pair.split('=').next())
        .any(|name| matches!(name, "token" | "access_token" | "local_token"));
    if !names_one && !token.occurs_in(query) && !token.occurs_in(uri.path()) {
        return Ok(());
    }
    metrics::counter!("heddle_ipc_token_in_query_total").increment(1);
    tracing::warn!("a request carried a token in its URL; refused");
    Err(Problem::new(
        ErrorCode::InvalidRequest,
        "a token must not stand in the URL",
    )
    .next("Send it in the Authorization header. It may be in a log now: stop the daemon, delete local_token and start again to get a new one."))
}

/// The token that a request presents.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, presented)| presented.trim())
}

pub(super) fn check_token<B>(request: &Request<B>, token: &LocalToken) -> Result<(), Problem> {
    match bearer(request.headers()) {
        Some(presented) if token.matches(presented) => Ok(()),
        Some(_) => Err(unauthorized("the token is wrong")),
        None => Err(unauthorized("there is no bearer token")),
    }
}

pub(super) fn unauthorized(detail: &str) -> Problem {
    metrics::counter!("heddle_ipc_unauthorized_total").increment(1);
    Problem::new(ErrorCode::Unauthorized, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_01_only_names_of_this_machine_pass() {
        for good in [
            "127.0.0.1",
            "127.0.0.1:7",
            "localhost:7",
            "LOCALHOST",
            "[::1]:7",
        ] {
            assert!(is_local_host(good, 7), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "evil.example:7",
            "127.0.0.1:8",
            "127.0.0.1.evil.example",
            "localhost.",
            "localhost:07",
            "127.0.0.1:",
            "127.0.0.2",
            "0.0.0.0",
            "[::1",
            "::1",
            "localhost:7:7",
            "é",
            "127.0.0.1 ",
        ] {
            assert!(!is_local_host(bad, 7), "{bad}");
        }
    }
}
