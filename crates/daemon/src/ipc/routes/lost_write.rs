//! The words of a warning about a write that was lost: both values, and one thing to do.

use heddle_core::shell::quoted;
use heddle_store::{LossKind, LossSide, LostValue};

use super::lost_claim::OWN_NAME;

/// How much of a value stands in the sentence; the answer has more of it beside.
const VALUE_CHARS_SHOWN: usize = 120;

/// What is said of a lost write.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) message: String,
    pub(super) next: String,
}

/// `by` is who made the write that stands, or nobody else than the loser itself.
pub(super) fn words(
    kind: LossKind,
    (key, left_out): (&str, u64),
    (yours, theirs, now): (&LossSide, &LossSide, Option<&LossSide>),
    by: &str,
) -> Words {
    let (noun, read, list) = match kind {
        LossKind::MemorySuperseded => ("memory", "heddle recall", "heddle recall"),
        _ => ("state", "heddle state get", "heddle state list"),
    };
    let by = if yours.peer == theirs.peer {
        OWN_NAME.to_owned()
    } else {
        format!("the one of {by}, who had not seen it")
    };
    let mut message = format!(
        "your write of {noun} {key:?} lost to {by}: {}, {}",
        match &yours.value {
            None | Some(LostValue::Deleted) => "you had deleted it".to_owned(),
            Some(value) => format!("yours was {}", shown(value)),
        },
        match &theirs.value {
            None | Some(LostValue::Deleted) => "theirs deleted it".to_owned(),
            Some(value) if now.is_none() => format!("theirs is {}", shown(value)),
            Some(value) => format!("theirs was {}", shown(value)),
        },
    );
    match now.map(|now| &now.value) {
        None => {}
        Some(value) if *value == yours.value => {
            message.push_str("; by now what stands is what you wrote");
        }
        Some(None | Some(LostValue::Deleted)) => message.push_str("; by now it is deleted"),
        Some(Some(value)) => message.push_str(&format!("; by now it is {}", shown(value))),
    }
    match left_out {
        0 => {}
        1 => message.push_str("; one older loss of yours is not listed"),
        more => message.push_str(&format!("; {more} older losses of yours are not listed")),
    }
    // A key that a command cannot name as it stands is found in the list.
    let look = if key.starts_with('-') || key.contains('`') || key.chars().any(char::is_control) {
        list.to_owned()
    } else {
        format!("{read} {}", quoted(key))
    };
    Words {
        message,
        next: format!("Look with `{look}`, and write yours again if it should stand."),
    }
}

fn shown(value: &LostValue) -> String {
    let (text, is_whole) = match value {
        LostValue::Deleted => ("", true),
        LostValue::Whole(text) => (text.as_str(), true),
        LostValue::Begins(text, _) => (text.as_str(), false),
    };
    match text.char_indices().nth(VALUE_CHARS_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None if is_whole => text.to_owned(),
        None => format!("{text}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(peer: &str, value: LostValue) -> LossSide {
        LossSide {
            peer: peer.to_owned(),
            lamport: 3,
            value: Some(value),
        }
    }

    fn whole(text: &str) -> LostValue {
        LostValue::Whole(text.to_owned())
    }

    #[test]
    fn both_values_are_said_and_one_thing_to_do() {
        let sides = (side("A/x", whole("1")), side("B/y", whole("[2]")));
        let said = words(
            LossKind::StateSuperseded,
            ("a b", 0),
            (&sides.0, &sides.1, None),
            "@bob/y",
        );
        assert_eq!(
            said.message,
            "your write of state \"a b\" lost to the one of @bob/y, who had not seen it: yours was 1, theirs is [2]"
        );
        assert_eq!(
            said.next,
            "Look with `heddle state get 'a b'`, and write yours again if it should stand."
        );
    }

    #[test]
    fn a_delete_a_long_value_and_an_own_write_have_their_words() {
        let long = format!("\"{}\"", "é".repeat(600));
        let sides = (side("A/x", LostValue::Deleted), side("A/x", whole(&long)));
        let said = words(
            LossKind::MemorySuperseded,
            ("-k", 2),
            (&sides.0, &sides.1, None),
            "@ann/x",
        );
        assert!(said.message.contains("you had deleted it"), "{said:?}");
        assert!(said.message.contains("your own name"), "{said:?}");
        assert!(said.message.contains("2 older losses"), "{said:?}");
        assert!(said.message.chars().count() < 400, "{said:?}");
        assert!(said.next.contains("`heddle recall`"), "{said:?}");
    }
}
