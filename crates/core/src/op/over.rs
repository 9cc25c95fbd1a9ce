//! What a write was made over: how a loser is told from somebody whose value was simply changed later.
//!
//! A write of a key that others write too names the write that stood there in its author's home. A change travels through
//! the log only, so whatever its author had seen stands before it there, and was taken before it in every home. Where it
//! takes the place of a write that it does not name, its author had not seen that one: had it, the row that the author
//! saw would have been that write or a later one, and the later one would stand here already.

use serde_json::Value;

use super::{OpError, malformed};
use crate::ids::OpId;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Over {
    /// The op does not say: an older build's, or a noun that has one writer for each row.
    #[default]
    Unsaid,
    /// Nothing was there, not even the mark of a deleted one.
    Nothing,
    Write(OpId),
}

impl Over {
    pub fn of(standing: Option<OpId>) -> Self {
        standing.map_or(Self::Nothing, Self::Write)
    }

    /// Whether who made this write did not know of the one whose place it takes. Where the op does not say, nobody is
    /// warned: a warning that is wrong costs more than one that is missing.
    pub fn had_not_seen(self, replaced: OpId) -> bool {
        match self {
            Self::Unsaid => false,
            Self::Nothing => true,
            Self::Write(seen) => seen != replaced,
        }
    }

    /// As the op's field `over`: absent, empty, or the id of the write.
    pub(super) fn field(self) -> Option<Value> {
        match self {
            Self::Unsaid => None,
            Self::Nothing => Some(Value::from("")),
            Self::Write(op) => Some(Value::from(op.to_string())),
        }
    }

    pub(super) fn parse(field: Option<&str>) -> Result<Self, OpError> {
        match field {
            None => Ok(Self::Unsaid),
            Some("") => Ok(Self::Nothing),
            Some(text) => match text.parse::<OpId>() {
                // One spelling: the same op has the same bytes.
                Ok(op) if op.to_string() == text => Ok(Self::Write(op)),
                _ => Err(malformed("what it was made over is no write")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_a_write_that_names_another_one_had_not_seen_it() {
        let (one, other) = (OpId(Uuid::from_u128(1)), OpId(Uuid::from_u128(2)));
        for (over, had_not) in [
            (Over::Unsaid, false),
            (Over::Nothing, true),
            (Over::Write(one), false),
            (Over::Write(other), true),
        ] {
            assert_eq!(over.had_not_seen(one), had_not, "{over:?}");
        }
    }

    #[test]
    fn it_comes_back_from_its_field_and_nothing_else_does() {
        for over in [
            Over::Unsaid,
            Over::Nothing,
            Over::Write(OpId(Uuid::from_u128(7))),
        ] {
            let field = over.field();
            let text = field.as_ref().and_then(Value::as_str);
            assert_eq!(Over::parse(text).unwrap(), over);
        }
        for bad in [" ", "x", "00000000000000000000000000000007"] {
            assert!(Over::parse(Some(bad)).is_err(), "{bad:?}");
        }
        let upper = "0000000A-0000-0000-0000-000000000000";
        assert!(Over::parse(Some(upper)).is_err());
    }
}
