//! The tokens of running hooks: in memory only, compared in constant time, gone with their process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use heddle_core::clock::Ids;
use heddle_core::limits::HOOK_TOKEN_LIFE;
use subtle::ConstantTimeEq as _;

use super::scope::Grant;
use crate::shared::lock;

/// What every hook's token begins with: one that has ended must not pass for no token at all.
pub(crate) const PREFIX: &str = "hhk_";
const TOKEN_BYTES: usize = 32;

/// At most one for each hook that runs.
#[derive(Default)]
pub(crate) struct Tokens {
    live: Mutex<Vec<Live>>,
}

struct Live {
    token: String,
    until: Duration,
    grant: Arc<Grant>,
}

/// The token's life: dropping it ends the token.
pub(crate) struct Minted<'a> {
    tokens: &'a Tokens,
    token: String,
}

impl Tokens {
    pub(crate) fn mint(&self, ids: &dyn Ids, now: Duration, grant: Grant) -> Minted<'_> {
        let mut bytes = [0; TOKEN_BYTES];
        ids.fill(&mut bytes);
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        lock(&self.live).push(Live {
            token: token.clone(),
            until: now.saturating_add(HOOK_TOKEN_LIFE),
            grant: Arc::new(grant),
        });
        Minted {
            tokens: self,
            token,
        }
    }

    /// What the token allows; `None` when it never was, or has ended.
    pub(crate) fn grant(&self, presented: &str, now: Duration) -> Option<Arc<Grant>> {
        let live = lock(&self.live);
        // Every one is compared, whichever fits: the time says nothing.
        let mut found = None;
        for one in live.iter() {
            let is_this: bool = one.token.as_bytes().ct_eq(presented.as_bytes()).into();
            if is_this && now < one.until {
                found = Some(Arc::clone(&one.grant));
            }
        }
        found
    }

    /// Whether the secret of a running hook stands in this text.
    pub(crate) fn occur_in(&self, text: &str) -> bool {
        lock(&self.live).iter().any(|one| text.contains(&one.token))
    }
}

impl Minted<'_> {
    /// For the environment of the hook's process, and nowhere else.
    pub(super) fn secret(&self) -> &str {
        &self.token
    }
}

impl Drop for Minted<'_> {
    fn drop(&mut self) {
        lock(&self.tokens.live).retain(|one| one.token != self.token);
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::ManualIds;

    use super::*;

    fn grant(hook: &str) -> Grant {
        Grant {
            hook: hook.to_owned(),
            scopes: Vec::new(),
            mesh: None,
            message: None,
        }
    }

    #[test]
    fn in_07_a_token_ends_with_its_process_or_after_five_minutes() {
        let tokens = Tokens::default();
        let ids = ManualIds::seeded(7);
        let start = Duration::from_secs(10);
        let first = tokens.mint(&ids, start, grant("a"));
        let second = tokens.mint(&ids, start, grant("b"));
        let (one, two) = (first.secret().to_owned(), second.secret().to_owned());
        let last = start + Duration::from_millis(299_999);
        assert_eq!(tokens.grant(&one, last).unwrap().hook, "a");
        assert_eq!(tokens.grant(&two, last).unwrap().hook, "b");
        assert!(
            tokens
                .grant(&one, start + Duration::from_secs(300))
                .is_none()
        );
        assert!(tokens.grant(&one[..one.len() - 1], start).is_none());
        assert!(tokens.grant("", start).is_none());
        assert!(tokens.occur_in(&format!("?x={one}")) && !tokens.occur_in("?x=1"));
        drop(first);
        assert!(tokens.grant(&one, start).is_none());
        assert!(tokens.grant(&two, start).is_some());
    }
}
