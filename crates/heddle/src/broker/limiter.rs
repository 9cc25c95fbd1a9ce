//! The limiter of a broker: in this process, or a Redis that brokers share.

use std::pin::Pin;
use std::sync::Arc;

use heddle_broker::limiter::{AnyLimiter, LocalLimiter, RedisLimiter};
use heddle_core::clock::Clock;
use heddle_daemon::config::BrokerConfig as Written;

use super::pages::Probe;
use super::settings::budget;
use crate::cli::{CliError, exit};

/// A Redis that is down now is no reason not to start: until it answers, new messages are refused for now.
pub fn limiter(
    url: Option<&str>,
    written: &Written,
    clock: Arc<dyn Clock>,
) -> Result<AnyLimiter, CliError> {
    let Some(url) = url else {
        return Ok(AnyLimiter::Local(LocalLimiter::new(clock, budget(written))));
    };
    // For rediss://. A second call finds it there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let opened = RedisLimiter::open(url, budget(written));
    let opened = opened.map_err(|error| {
        CliError::new(exit::USAGE, error.to_string()).next(
            "Write --limiter redis://HOST:PORT/ (rediss:// with TLS), or put it into HEDDLE_BROKER_LIMITER; without \
             one, each broker counts alone.",
        )
    })?;
    Ok(AnyLimiter::Redis(Box::new(opened)))
}

/// What to know of a Redis that asks nobody for a password (T-32).
pub fn open_limiter(url: &str) -> Option<&'static str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_socket = scheme.contains("unix");
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    (!is_socket && !authority.contains('@')).then_some(
        "the limiter's Redis lets this broker in without a password, and so it does whoever reaches its port: set requirepass, or a user \
         of its own, and write redis://USER:PASSWORD@HOST:PORT/",
    )
}

struct LimiterProbe(Arc<AnyLimiter>);

impl Probe for LimiterProbe {
    fn name(&self) -> &'static str {
        "limiter"
    }

    fn ask(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async {
            match self.0.as_ref() {
                AnyLimiter::Local(_) => Ok(()),
                AnyLimiter::Redis(redis) => redis.ping().await.map_err(|error| error.to_string()),
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
