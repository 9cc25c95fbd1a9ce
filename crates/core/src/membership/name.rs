//! A name that is free, near the one that was wanted.

use crate::limits::NAME_BYTES_MAX;
use crate::names::MemberName;

/// Numbers that are tried behind a taken name.
const TRIES: std::ops::Range<u32> = 2..1000;

/// `bob-2` where `bob` is taken. `None` where a thousand of them are.
pub fn free_name(
    wanted: &MemberName,
    is_taken: impl Fn(&MemberName) -> bool,
) -> Option<MemberName> {
    TRIES.into_iter().find_map(|number| {
        let behind = format!("-{number}");
        let mut stem = wanted.as_str();
        while stem.len() + behind.len() > NAME_BYTES_MAX {
            stem = &stem[..stem.char_indices().next_back()?.0];
        }
        let name = MemberName::parse(&format!("{stem}{behind}")).ok()?;
        (!is_taken(&name)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_number_is_suggested_and_a_long_name_is_cut() {
        let name = |text: &str| MemberName::parse(text).unwrap();
        let taken = [name("bob"), name("bob-2")];
        let free = free_name(&name("bob"), |name| taken.contains(name));
        assert_eq!(free, Some(name("bob-3")));
        let long = name(&"ß".repeat(NAME_BYTES_MAX / 2));
        let free = free_name(&long, |_| false).unwrap();
        assert!(free.as_str().ends_with("-2") && free.as_str().len() <= NAME_BYTES_MAX);
        assert_eq!(free_name(&name("bob"), |_| true), None);
    }
}
