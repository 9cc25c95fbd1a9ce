//! The limiter of a broker: in this process, or a Redis that brokers share.

use std::net::IpAddr;
use std::sync::Arc;

use heddle_broker::limiter::{AnyLimiter, LocalLimiter, RedisLimiter};
use heddle_core::clock::Clock;
use heddle_daemon::config::BrokerConfig as Written;

use super::pages::{Asked, Probe};
use super::serve::ServeOptions;
use super::settings::budget;
use crate::cli::{CliError, exit};

/// A Redis that is down now is no reason not to start: until it answers, new messages are refused for now.
pub fn limiter(
    options: &ServeOptions,
    written: &Written,
    clock: Arc<dyn Clock>,
) -> Result<AnyLimiter, CliError> {
    let Some(url) = options.limiter.as_deref() else {
        if options.limiter_ca.is_some() {
            return Err(CliError::new(exit::USAGE, "--limiter-ca vouches for no limiter")
                .next("Name the Redis with --limiter rediss://HOST:PORT/ or HEDDLE_BROKER_LIMITER, or leave it out."));
        }
        return Ok(AnyLimiter::Local(LocalLimiter::new(clock, budget(written))));
    };
    // For rediss://. A second call finds it there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let opened = RedisLimiter::open(url, options.limiter_ca.as_deref(), budget(written));
    let opened = opened.map_err(|error| {
        CliError::new(exit::USAGE, error.to_string()).next(
            "Write --limiter redis://HOST:PORT/ (rediss:// with TLS, --limiter-ca FILE for your own authority), or put it \
             into HEDDLE_BROKER_LIMITER; without one, each broker counts alone.",
        )
    })?;
    Ok(AnyLimiter::Redis(Box::new(opened)))
}

/// What to know of a Redis that asks nobody for a password, or that is spoken to in the clear (T-32).
pub fn open_limiter(url: &str) -> Vec<&'static str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Vec::new();
    };
    if scheme.contains("unix") {
        return Vec::new();
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let mut warnings = Vec::new();
    if !authority.contains('@') {
        warnings.push(
            "the limiter's Redis lets this broker in without a password, and so it does whoever reaches its port: set requirepass, or a user \
             of its own, and write redis://USER:PASSWORD@HOST:PORT/",
        );
    }
    let host = authority.rsplit('@').next().unwrap_or_default();
    if !scheme.starts_with("rediss") && !is_here(host) {
        warnings.push(
            "the limiter's Redis is another machine and is spoken to in the clear, password and all: give it a certificate and write rediss://, \
             unless the network between them is your own",
        );
    }
    warnings
}

fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Result<IpAddr, _> = name.parse();
    name.is_empty() || name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

struct LimiterProbe(Arc<AnyLimiter>);

impl Probe for LimiterProbe {
    fn name(&self) -> &'static str {
        "limiter"
    }

    fn ask(&self) -> Asked<'_> {
        Box::pin(async {
            match self.0.as_ref() {
                AnyLimiter::Local(_) => Ok(()),
                AnyLimiter::Redis(redis) => redis.ping().await.map_err(|error| {
                    let why = error.to_string();
                    self.waits(if why.contains("UnknownIssuer") {
                        format!("{why}; name the authority that signed its certificate with --limiter-ca FILE")
                    } else {
                        why
                    })
                }),
            }
        })
    }
}

/// Only one that is elsewhere can be out of reach.
pub fn limiter_probe(limiter: &Arc<AnyLimiter>) -> Option<Box<dyn Probe>> {
    match limiter.as_ref() {
        AnyLimiter::Local(_) => None,
        AnyLimiter::Redis(_) => Some(Box::new(LimiterProbe(Arc::clone(limiter)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_32_a_redis_without_a_password_or_in_the_clear_elsewhere_is_told() {
        for (url, told) in [
            ("redis://127.0.0.1:6379/", 1),
            ("redis://:secret@127.0.0.1:6379/", 0),
            ("redis://:secret@localhost/", 0),
            ("redis://:secret@[::1]:6379/", 0),
            ("redis://:secret@redis.example:6379/", 1),
            ("redis://:secret@[2001:db8::1]:6379/", 1),
            ("redis://redis.example:6379/", 2),
            ("rediss://:secret@redis.example:6379/", 0),
            ("rediss://redis.example:6379/", 1),
            ("redis+unix:///run/redis.sock", 0),
            ("unix:///run/redis.sock", 0),
        ] {
            assert_eq!(open_limiter(url).len(), told, "{url}");
        }
    }
}
