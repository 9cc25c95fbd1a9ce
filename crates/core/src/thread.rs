//! Which messages belong to one thread: those that replies connect, in either direction and over any number of steps.

use std::collections::{BTreeMap, BTreeSet};

/// One message, by its sender's id, and what it answers; empty where it answers nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub id: String,
    pub reply_to: String,
}

/// The ids of the thread that `of` is in, itself included. What it answers may be unknown here: its other answers are
/// in the thread all the same.
pub fn members<'l>(links: impl IntoIterator<Item = &'l Link>, of: &str) -> BTreeSet<String> {
    let mut beside: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for link in links {
        if !link.reply_to.is_empty() {
            let (id, reply_to) = (link.id.as_str(), link.reply_to.as_str());
            beside.entry(id).or_default().push(reply_to);
            beside.entry(reply_to).or_default().push(id);
        }
    }
    let mut thread = BTreeSet::from([of.to_owned()]);
    let mut next = vec![of];
    while let Some(id) = next.pop() {
        for other in beside.get(id).into_iter().flatten() {
            if thread.insert((*other).to_owned()) {
                next.push(other);
            }
        }
    }
    thread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_what_replies_connect_and_a_circle_ends() {
        let link = |id: &str, reply_to: &str| Link {
            id: id.to_owned(),
            reply_to: reply_to.to_owned(),
        };
        let links = [
            link("q1", ""),
            link("a1", "q1"),
            link("q2", "a1"),
            link("a2", "q2"),
            link("other", ""),
            link("reply-to-other", "other"),
            link("b1", "gone"),
            link("b2", "gone"),
            link("x", "y"),
            link("y", "x"),
        ];
        let of = |id: &str| members(&links, id).into_iter().collect::<Vec<_>>();
        for id in ["q1", "a1", "q2", "a2"] {
            assert_eq!(of(id), ["a1", "a2", "q1", "q2"], "{id}");
        }
        assert_eq!(of("other"), ["other", "reply-to-other"]);
        assert_eq!(of("b1"), ["b1", "b2", "gone"]);
        assert_eq!(of("x"), ["x", "y"]);
        assert_eq!(of("nobody"), ["nobody"]);
    }
}
