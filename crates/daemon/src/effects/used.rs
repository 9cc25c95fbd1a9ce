//! Tells the home's own store that effects are decided about here, before the first one is.

use std::sync::atomic::{AtomicBool, Ordering};

use heddle_store::Store;
use heddle_wire::broker::EffectCall;
use heddle_wire::problem::Problem;

use crate::shared::store_problem;

pub(super) struct Used {
    store: Store,
    is_said: AtomicBool,
}

impl Used {
    pub(super) fn new(store: Store, is_said: bool) -> Self {
        Self {
            store,
            is_said: AtomicBool::new(is_said),
        }
    }

    /// IMPORTANT: before the call is decided. A mark without an effect costs nothing; an effect without its mark
    /// could be lost without anybody noticing.
    pub(super) async fn before(&self, call: &EffectCall) -> Result<(), Problem> {
        if !call.is_change() {
            return Ok(());
        }
        self.say().await
    }

    pub(super) async fn say(&self) -> Result<(), Problem> {
        if self.is_said.load(Ordering::Acquire) {
            return Ok(());
        }
        let said = self.store.use_effects(0).await;
        said.map_err(|error| store_problem(&error))?;
        self.is_said.store(true, Ordering::Release);
        Ok(())
    }
}
