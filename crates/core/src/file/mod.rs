//! What a shared file is: where it is said to lie, what its bytes are, what they are said to be.

mod change;
mod content;
mod media;
mod path;

pub use change::{FileChange, FileContent, FileContentError};
pub use content::{ContentHash, ContentHashError, ContentHasher};
pub use media::{MediaType, MediaTypeError};
pub use path::{FilePath, FilePathError};
