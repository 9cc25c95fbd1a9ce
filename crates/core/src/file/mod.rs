//! What a shared file is: where it is said to lie, what its bytes are, what they are said to be.

mod content;
mod hash;
mod media;
mod path;

pub use content::{FileContent, FileContentError};
pub use hash::{ContentHash, ContentHashError, ContentHasher};
pub use media::{MediaType, MediaTypeError};
pub use path::{FilePath, FilePathError};
