//! Vectors: whose model made one, what is taken for one, and which of them are nearest.
//!
//! All of it is arithmetic with one fixed order of operations, so every machine finds the same
//! neighbours in the same order.

mod embedding;
mod hashed;
mod kernel;
mod matrix;
mod model;
mod sketch;
mod top;

pub use embedding::{Embedding, EmbeddingError};
pub use hashed::{HASHED, NothingToEmbed, hashed, hashed_identity};
pub use matrix::{Label, Matrix, Scan};
pub use model::{ModelError, ModelFingerprint, ModelIdentity, QUANTIZATION, VERSION_UNKNOWN};
pub use top::{Hit, Top};
