//! The limiter of brokers that share a budget: one script on a Redis, which counts and remembers in one step.
//!
//! The server's own clock names the window, so brokers whose clocks differ agree. The counter and the ids of a
//! window expire together. A server that is down, slow or full is an error, and the caller refuses for now
//! (C35); all of its memory may be lost at any time, which grants at most one limit more (RL-07).

use std::path::Path;
use std::time::Duration;

use heddle_core::ids::{IdKey, MeshId};
use redis::{Client, ConnectionAddr, IntoConnectionInfo as _, RedisError, Script, TlsCertificates};

use super::contract::{Decision, Limiter, LimiterError};
use super::link::Link;
use super::local::Budget;
use crate::authorities::Authorities;

/// KEYS[1]: what the keys of this mesh begin with; in braces, so that a cluster keeps them together.
/// ARGV: the limit, the window in microseconds, microseconds to add to the clock (for tests), then the ids.
/// Answers the window, the microseconds that are left of it, then for each id 0 denied, 1 counted, 2 known in this window.
const CONSUME: &str = r"
local now = redis.call('TIME')
local micros = tonumber(now[1]) * 1000000 + tonumber(now[2]) + tonumber(ARGV[3])
local length = tonumber(ARGV[2])
local window = math.floor(micros / length)
local name = string.format('%.0f', window)
local counter, ids = KEYS[1] .. ':n:' .. name, KEYS[1] .. ':i:' .. name
local limit = tonumber(ARGV[1])
local used = tonumber(redis.call('GET', counter) or '0')
local left = string.format('%.0f', (window + 1) * length - micros)
local answers, wrote = { name, left }, false
for index = 4, #ARGV do
    local answer = 0
    if redis.call('SISMEMBER', ids, ARGV[index]) == 1 then
        answer = 2
    elseif used < limit then
        used = redis.call('INCR', counter)
        redis.call('SADD', ids, ARGV[index])
        answer, wrote = 1, true
    end
    answers[#answers + 1] = tostring(answer)
end
if wrote then
    local life = math.ceil(2 * length / 1000)
    redis.call('PEXPIRE', counter, life)
    redis.call('PEXPIRE', ids, life)
end
return answers
";

/// A write that leaves nothing behind.
const PROBE: &str = "redis.call('SET', KEYS[1], ''); redis.call('DEL', KEYS[1])";

/// Why there is no limiter at this address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the limiter's address is not usable: {0}")]
pub struct RedisAddressError(String);

pub struct RedisLimiter {
    link: Link,
    script: Script,
    probe: Script,
    budget: Budget,
    /// What keys begin with; brokers of one database share it.
    prefix: String,
    #[cfg(test)]
    ahead: std::sync::atomic::AtomicU64,
}

impl RedisLimiter {
    /// Connects when it is first asked, and again whenever the connection is lost. Needs a runtime. The authorities in
    /// `ca_file` vouch for a server at `rediss://`, instead of those that the machine trusts.
    pub fn open(
        url: &str,
        ca_file: Option<&Path>,
        budget: Budget,
    ) -> Result<Self, RedisAddressError> {
        let bad = |error: RedisError| RedisAddressError(words(&error));
        let client = match ca_file {
            None => Client::open(url).map_err(bad)?,
            Some(file) => trusting(url, file)?,
        };
        let link = Link::new(client).map_err(bad)?;
        Ok(Self {
            link,
            script: Script::new(CONSUME),
            probe: Script::new(PROBE),
            budget,
            prefix: "heddle:rl".to_owned(),
            #[cfg(test)]
            ahead: std::sync::atomic::AtomicU64::new(0),
        })
    }

    /// Whether it answers now, and would count: one that is full answers, and counts nothing.
    pub async fn ping(&self) -> Result<(), LimiterError> {
        let mut call = self.probe.prepare_invoke();
        call.key(format!("{}:ready", self.prefix));
        let asked: Result<(), _> = call.invoke_async(&mut self.link.now()).await;
        match asked {
            Ok(()) => Ok(()),
            Err(error) => {
                self.link.met(&error).await;
                Err(failed(&error))
            }
        }
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "tests move the clock")]
    fn ahead_us(&self) -> u64 {
        0
    }

    #[cfg(test)]
    fn ahead_us(&self) -> u64 {
        self.ahead.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Keys of its own, and a clock that stands at the beginning of a window.
    #[cfg(test)]
    pub(super) async fn for_test(url: &str, budget: Budget, prefix: String) -> Self {
        let limiter = Self {
            prefix,
            ..Self::open(url, None, budget).unwrap()
        };
        let mut connection = limiter.link.now();
        let time: (u64, u64) = redis::cmd("TIME")
            .query_async(&mut connection)
            .await
            .unwrap();
        let window_us = u64::try_from(budget.window.as_micros()).unwrap();
        let into = (time.0 * 1_000_000 + time.1) % window_us;
        limiter.advance(Duration::from_micros(window_us - into));
        limiter
    }

    #[cfg(test)]
    pub(super) fn advance(&self, by: Duration) {
        let us = u64::try_from(by.as_micros()).unwrap();
        let order = std::sync::atomic::Ordering::SeqCst;
        self.ahead.fetch_add(us, order);
    }
}

impl Limiter for RedisLimiter {
    async fn consume(&self, mesh: MeshId, keys: &[IdKey]) -> Result<Vec<Decision>, LimiterError> {
        let window_us = u64::try_from(self.budget.window.as_micros()).unwrap_or(u64::MAX);
        let mut call = self.script.prepare_invoke();
        call.key(format!("{}:{{{mesh}}}", self.prefix))
            .arg(self.budget.ids_per_window_max)
            .arg(window_us.max(1))
            .arg(self.ahead_us());
        for key in keys {
            call.arg(key.0.as_slice());
        }
        let answers = call.invoke_async(&mut self.link.now()).await;
        let answers: Vec<String> = match answers {
            Ok(answers) => answers,
            Err(error) => {
                self.link.met(&error).await;
                return Err(failed(&error));
            }
        };
        read(&answers, keys.len())
    }
}

fn trusting(url: &str, file: &Path) -> Result<Client, RedisAddressError> {
    let bad = |error: RedisError| RedisAddressError(words(&error));
    let address = url.into_connection_info().map_err(bad)?;
    if !matches!(address.addr(), ConnectionAddr::TcpTls { .. }) {
        let why = "a file of authorities is for rediss://, and this one is not encrypted";
        return Err(RedisAddressError(why.to_owned()));
    }
    let authorities = Authorities::read(file).map_err(RedisAddressError)?;
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(authorities.pem),
    };
    Client::build_with_tls(address, certificates).map_err(bad)
}

/// As many answers as questions, or none at all: nothing is granted by a guess.
fn read(answers: &[String], count: usize) -> Result<Vec<Decision>, LimiterError> {
    let strange = || LimiterError(format!("it answered {answers:?}"));
    let [window, left, answers_each @ ..] = answers else {
        return Err(strange());
    };
    let window: u64 = window.parse().map_err(|_| strange())?;
    let left = left.parse().map_err(|_| strange())?;
    if answers_each.len() != count {
        return Err(strange());
    }
    let decision = |answer: &String| match answer.as_str() {
        "0" => Ok(Decision::Denied {
            retry_after: Duration::from_micros(left),
        }),
        "1" => Ok(Decision::Granted {
            window,
            counted: true,
        }),
        "2" => Ok(Decision::Granted {
            window,
            counted: false,
        }),
        _ => Err(strange()),
    };
    answers_each.iter().map(decision).collect()
}

fn failed(error: &RedisError) -> LimiterError {
    LimiterError(words(error))
}

/// Without the address, which may hold a password (XC-01).
fn words(error: &RedisError) -> String {
    let detail = error.detail().map(str::to_owned);
    // Of the way to it: what TLS or the network say.
    let detail = detail.or_else(|| std::error::Error::source(error).map(ToString::to_string));
    match detail {
        Some(detail) if !detail.contains("://") => format!("{}: {detail}", error.category()),
        _ => error.category().to_owned(),
    }
}

/// What a test looks at in the server.
#[cfg(test)]
impl RedisLimiter {
    /// The keys of the window of now and of the one before, of a mesh.
    async fn keys(&self, mesh: MeshId) -> Vec<String> {
        let mut connection = self.link.now();
        let time: (u64, u64) = redis::cmd("TIME")
            .query_async(&mut connection)
            .await
            .unwrap();
        let window_us = u64::try_from(self.budget.window.as_micros()).unwrap();
        let now = (time.0 * 1_000_000 + time.1 + self.ahead_us()) / window_us;
        let base = format!("{}:{{{mesh}}}", self.prefix);
        let windows = [now, now - 1];
        let names = windows.map(|window| ["n", "i"].map(|kind| format!("{base}:{kind}:{window}")));
        names.into_iter().flatten().collect()
    }

    pub(super) async fn remembered_in_two_windows(&self, meshes: u128) -> usize {
        let mut connection = self.link.now();
        let mut count = 0;
        for number in 0..meshes {
            for key in self.keys(crate::test_support::mesh(number)).await {
                if key.contains(":i:") {
                    let mut ask = redis::cmd("SCARD");
                    let ids: usize = ask.arg(key).query_async(&mut connection).await.unwrap();
                    count += ids;
                }
            }
        }
        count
    }

    /// How long the keys of a mesh have to live, in milliseconds; -1 for ever.
    pub(super) async fn lives(&self, number: u128) -> Vec<i64> {
        let mut connection = self.link.now();
        let mut lives = Vec::new();
        for key in self.keys(crate::test_support::mesh(number)).await {
            let mut ask = redis::cmd("PTTL");
            let ms: i64 = ask.arg(key).query_async(&mut connection).await.unwrap();
            // -2: there is no such key.
            lives.extend((ms != -2).then_some(ms));
        }
        lives
    }

    pub(super) async fn forget_everything(&self, number: u128) {
        let mut connection = self.link.now();
        for key in self.keys(crate::test_support::mesh(number)).await {
            let mut ask = redis::cmd("DEL");
            let _: i64 = ask.arg(key).query_async(&mut connection).await.unwrap();
        }
        let mut ask = redis::cmd("SCRIPT");
        let _: String = ask.arg("FLUSH").query_async(&mut connection).await.unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_06_an_answer_that_does_not_fit_grants_nothing() {
        let texts = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        for bad in [
            &[][..],
            &["7"],
            &["7", "5"],
            &["7", "5", "1", "1"],
            &["7", "5", "9"],
            &["x", "5", "1"],
            &["7", "-5", "1"],
        ] {
            assert!(read(&texts(bad), 1).is_err(), "{bad:?}");
        }
        let granted = read(&texts(&["7", "5", "1", "2", "0"]), 3).unwrap();
        let retry_after = Duration::from_micros(5);
        assert_eq!(granted[2], Decision::Denied { retry_after });
    }
}
