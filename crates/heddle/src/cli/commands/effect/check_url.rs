//! Asks a URL whether an effect is as it should be: any 2xx says yes.
//!
//! Plain HTTP goes to this machine only, everything else over TLS; redirects are not followed, and every
//! wait and every answer is bounded.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::Clock;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Kept of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Told of one that says no: a line of it, not the page.
const SAID_CHARS_MAX: usize = 100;
/// Between two tries of something that is still starting.
const PAUSE: Duration = Duration::from_millis(250);
/// It is asked once, however short the time is.
const TRY_MIN: Duration = Duration::from_secs(1);
/// No single try is worth more.
const TRY_MAX: Duration = Duration::from_secs(10);

/// What is asked, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    is_https: bool,
    host: String,
    port: u16,
    target: String,
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        write!(f, "{scheme}://{host}:{}{}", self.port, self.target)
    }
}

/// Says whether it can be asked at all; clap calls it before anything is registered.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let (is_https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("a URL begins with https:// or http://".to_owned()),
    };
    if rest.chars().any(|c| c.is_control() || c == ' ') {
        return Err("a URL holds no spaces".to_owned());
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.contains('@') {
        return Err("put no password into the URL: it would be kept with the verdict".to_owned());
    }
    let (host, port) = host_and_port(authority, if is_https { 443 } else { 80 })?;
    if !is_https && !is_loopback(&host) {
        return Err("http:// is for this machine only; use https:// elsewhere".to_owned());
    }
    let target = target.split('#').next().unwrap_or_default();
    Ok(Url {
        is_https,
        host,
        port,
        target: if target.starts_with('/') {
            target.to_owned()
        } else {
            format!("/{target}")
        },
    })
}

fn host_and_port(authority: &str, default: u16) -> Result<(String, u16), String> {
    let port = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| "the port is no number".to_owned())
    };
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the address has no ]")?;
        let port = match rest.strip_prefix(':') {
            Some(text) => port(text)?,
            None => default,
        };
        return Ok((host.to_owned(), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, text)) => (host, port(text)?),
        None => (authority, default),
    };
    if host.is_empty() {
        return Err("the URL has no host".to_owned());
    }
    Ok((host.to_owned(), port))
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// What the URL says of it, and in words. Tries again until the time is over: what was just deployed may
/// need a moment. None where nobody has answered: then nobody knows.
pub(super) fn check(url: &Url, within: Duration, clock: &dyn Clock) -> (Option<bool>, String) {
    let end = clock.mono() + within;
    loop {
        let left = end.saturating_sub(clock.mono());
        let (verdict, said) = match ask(url, left.clamp(TRY_MIN, TRY_MAX), clock) {
            Ok((status @ 200..=299, _)) => return (Some(true), format!("answered {status}")),
            Ok((status, said)) => (Some(false), format!("answered {status}{said}")),
            Err(why) => (None, format!("did not answer: {why}")),
        };
        if end.saturating_sub(clock.mono()) <= PAUSE {
            return (
                verdict,
                format!("{said} (tried for {} s)", within.as_secs()),
            );
        }
        std::thread::sleep(PAUSE);
    }
}

fn ask(url: &Url, time: Duration, clock: &dyn Clock) -> Result<(u16, String), String> {
    let deadline = (clock, clock.mono() + time);
    let stream = connect(url, time)?;
    if !url.is_https {
        return exchange(stream, url, deadline);
    }
    let name = ServerName::try_from(url.host.clone()).map_err(|error| error.to_string())?;
    let connection = ClientConnection::new(tls()?, name).map_err(|error| error.to_string())?;
    exchange(StreamOwned::new(connection, stream), url, deadline)
}

fn connect(url: &Url, time: Duration) -> Result<TcpStream, String> {
    let addresses = (url.host.as_str(), url.port).to_socket_addrs();
    let addresses = addresses.map_err(|error| format!("{}: {error}", url.host))?;
    let mut why = format!("{}: no address", url.host);
    for address in addresses {
        // A name that says `localhost` and means something else is not asked in the clear.
        if !url.is_https && !address.ip().is_loopback() {
            why = format!("{address} is not this machine");
            continue;
        }
        match TcpStream::connect_timeout(&address, time) {
            Ok(stream) => {
                let timed = stream
                    .set_read_timeout(Some(time))
                    .and_then(|()| stream.set_write_timeout(Some(time)));
                return timed.map(|()| stream).map_err(|error| error.to_string());
            }
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// The certificates that this machine trusts.
fn tls() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err("this machine has no certificates that it trusts".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}

fn exchange(
    mut stream: impl Read + Write,
    url: &Url,
    (clock, deadline): (&dyn Clock, Duration),
) -> Result<(u16, String), String> {
    let host = if url.host.contains(':') {
        format!("[{}]", url.host)
    } else {
        url.host.clone()
    };
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {host}:{}\r\nUser-Agent: heddle\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        url.target, url.port
    );
    let failed = |error: std::io::Error| format!("{}:{}: {error}", url.host, url.port);
    stream.write_all(request.as_bytes()).map_err(failed)?;
    stream.flush().map_err(failed)?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 2048]);
    while answer.len() < ANSWER_BYTES_MAX && clock.mono() < deadline {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            // What came so far may be all that is needed.
            Err(error) if status(&answer).is_none() => return Err(failed(error)),
            Err(_) => break,
        }
    }
    let status = status(&answer).ok_or_else(|| "it speaks no HTTP".to_owned())?;
    Ok((status, said(&String::from_utf8_lossy(&answer))))
}

/// What it says of itself, in one short line: the first of its text, or where that is a page the words behind the code.
fn said(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let mut lines = body.lines().map(str::trim);
    let text = lines.find(|line| !line.is_empty());
    let reason = head.lines().next().and_then(|line| line.get(13..));
    let text = text.filter(|text| !text.starts_with('<')).or(reason);
    let text = text.unwrap_or_default().trim();
    let is_long = text.chars().count() > SAID_CHARS_MAX;
    let shown: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(SAID_CHARS_MAX)
        .collect();
    match (shown.is_empty(), is_long) {
        (true, _) => String::new(),
        (false, true) => format!(": {shown}…"),
        (false, false) => format!(": {shown}"),
    }
}

/// The code of a whole first line.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    if line.len() == answer.len() {
        return None;
    }
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    let code = rest.get(2..5)?.parse().ok()?;
    (rest.get(1..2) == Some(" ")).then_some(code)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;
    use crate::system::SystemClock;

    #[test]
    fn only_this_machine_is_asked_in_the_clear_and_nothing_secret_is_in_a_url() {
        for bad in [
            "example.org",
            "ftp://localhost",
            "http://example.org/",
            "http://10.0.0.1/",
            "https://a:b@example.org/",
            "https:///path",
            "http://localhost:http/",
            "https://a b/",
            "http://[::1/",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let url = parse("http://127.0.0.1:8080/health?x=1#part").unwrap();
        assert_eq!((url.port, url.target.as_str()), (8080, "/health?x=1"));
        assert_eq!(parse("https://example.org").unwrap().target, "/");
        assert_eq!(parse("https://example.org?q").unwrap().target, "/?q");
        assert_eq!(parse("http://[::1]:1/").unwrap().host, "::1");
    }

    /// Answers each connection with the next of these.
    fn server(answers: Vec<&'static str>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(&stream).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let _ = (&stream).write_all(answer.as_bytes());
            }
        });
        port
    }

    fn checked(answers: Vec<&'static str>, ms: u64) -> (Option<bool>, String) {
        let url = format!("http://127.0.0.1:{}/", server(answers));
        let clock = SystemClock::start();
        check(&parse(&url).unwrap(), Duration::from_millis(ms), &clock)
    }

    #[test]
    fn a_2xx_says_yes_and_anything_else_is_asked_again_until_the_time_is_over() {
        let busy = "HTTP/1.1 503 Busy\r\n\r\nnot yet";
        let fine = "HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(checked(vec![busy, fine], 60_000).1, "answered 204");
        let (passed, why) = checked(vec![busy], 100);
        assert_eq!(passed, Some(false));
        assert!(why.starts_with("answered 503: not yet"), "{why}");
        let moved = "HTTP/1.1 302 Found\r\nLocation: https://example.org\r\n\r\n";
        let (passed, _) = checked(vec![moved], 100);
        assert_eq!(passed, Some(false), "redirects are not followed");
    }

    #[test]
    fn of_a_page_one_short_line_is_told() {
        for (answer, expected) in [
            ("HTTP/1.1 503 Busy\r\n\r\nnot yet\nmore\n", ": not yet"),
            ("HTTP/1.1 503 Busy\r\n\r\n\n  \n later\u{7}\n", ": later"),
            (
                "HTTP/1.0 404 File not found\r\nA: b\r\n\r\n<!DOCTYPE HTML>\n<html>…",
                ": File not found",
            ),
            ("HTTP/1.1 500\r\n\r\n<html>", ""),
            ("HTTP/1.1 500\r\n\r\n", ""),
        ] {
            assert_eq!(said(answer), expected, "{answer:?}");
        }
        let long = format!("HTTP/1.1 500 No\r\n\r\n{}", "é".repeat(5000));
        assert_eq!(said(&long).chars().count(), 2 + SAID_CHARS_MAX + 1);
    }

    #[test]
    fn who_does_not_answer_says_neither_yes_nor_no() {
        assert_eq!(checked(vec!["hello\n"], 100).0, None);
        let closed = parse("http://127.0.0.1:1/").unwrap();
        let clock = SystemClock::start();
        let (passed, why) = check(&closed, Duration::from_millis(100), &clock);
        assert_eq!(passed, None);
        assert!(why.starts_with("did not answer: "), "{why}");
        // Accepts, and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let (passed, why) = check(&parse(&url).unwrap(), Duration::from_millis(100), &clock);
        assert_eq!(passed, None, "{why}");
    }

    #[test]
    fn https_is_not_taken_from_somebody_who_has_no_certificate() {
        let port = server(vec!["HTTP/1.1 200 OK\r\n\r\n"]);
        let url = parse(&format!("https://localhost:{port}/")).unwrap();
        let clock = SystemClock::start();
        let (passed, why) = check(&url, Duration::from_millis(300), &clock);
        assert_eq!(passed, None, "{why}");
    }
}
