//! Tests of the way out over the real store.
