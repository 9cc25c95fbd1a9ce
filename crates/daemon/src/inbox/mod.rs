//! The way in: what the broker delivers is kept, then acknowledged, then announced; and the jobs
//! behind it: the search index, the receipts, the retention.

pub(crate) mod damage;
pub(crate) mod displaced;
pub(crate) mod index;
pub(crate) mod receipts;
pub(crate) mod receive;
pub(crate) mod recover;
pub(crate) mod retention;
