//! What kind of bytes a file's owner says it has (`text/plain`). Told on, never acted on.

use std::fmt;

use crate::limits::MEDIA_TYPE_BYTES_MAX;

/// `type/subtype` in lower case, without parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a media type looks like text/plain and has at most {MEDIA_TYPE_BYTES_MAX} bytes")]
pub struct MediaTypeError;

impl MediaType {
    pub fn parse(text: &str) -> Result<Self, MediaTypeError> {
        let text = text.to_ascii_lowercase();
        let is_token = |part: &str| {
            let may = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.bytes().all(may)
        };
        match text.split_once('/') {
            Some((kind, subkind))
                if text.len() <= MEDIA_TYPE_BYTES_MAX && is_token(kind) && is_token(subkind) =>
            {
                Ok(Self(text))
            }
            _ => Err(MediaTypeError),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_and_nothing_that_could_be_a_header() {
        for good in ["text/plain", "Image/SVG+xml", "application/vnd.x-y.z"] {
            let parsed = MediaType::parse(good).unwrap();
            assert_eq!(parsed.as_str(), good.to_ascii_lowercase());
        }
        let long = format!("a/{}", "b".repeat(MEDIA_TYPE_BYTES_MAX));
        for bad in [
            "",
            "text",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a/b\r\nx: y",
            "a/b; charset=x",
            "a /b",
            "é/b",
            ".a/b",
            &long,
        ] {
            assert_eq!(MediaType::parse(bad), Err(MediaTypeError), "{bad:?}");
        }
    }
}
