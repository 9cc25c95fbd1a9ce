//! The way in: what the broker delivers is kept, then acknowledged, then announced.

pub(crate) mod receive;
