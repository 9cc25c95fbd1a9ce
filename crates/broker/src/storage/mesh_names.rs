//! Which name a mesh gets where another mesh has taken it: people must be able to tell them apart.

use heddle_core::limits::NAME_BYTES_MAX;
use heddle_core::names::MeshName;

/// The name for a mesh that asks for one: the one it has, if it grew out of this wish; else the first
/// of `team`, `team-2`, `team-3`, … that no other mesh has.
pub(super) fn choose(
    asked: &MeshName,
    current: Option<&MeshName>,
    is_taken: impl Fn(&MeshName) -> bool,
) -> MeshName {
    if let Some(current) = current
        && grew_out_of(asked, current)
    {
        return current.clone();
    }
    let mut wishes = (1_u32..).map(|number| numbered(asked, number));
    let free = wishes.find(|wish| !is_taken(wish));
    free.unwrap_or_else(|| asked.clone())
}

fn grew_out_of(asked: &MeshName, current: &MeshName) -> bool {
    let number = current.as_str().rsplit_once('-');
    let number = number.and_then(|(_, number)| number.parse().ok());
    asked == current || number.is_some_and(|number| numbered(asked, number) == *current)
}

/// The name with a number behind it, cut so that both fit.
fn numbered(name: &MeshName, number: u32) -> MeshName {
    if number <= 1 {
        return name.clone();
    }
    let tail = format!("-{number}");
    let mut end = name.as_str().len().min(NAME_BYTES_MAX - tail.len());
    while !name.as_str().is_char_boundary(end) {
        end -= 1;
    }
    let text = format!("{}{tail}", &name.as_str()[..end]);
    MeshName::parse(&text).unwrap_or_else(|_| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> MeshName {
        MeshName::parse(text).unwrap()
    }

    #[test]
    fn the_first_free_number_is_taken_and_kept() {
        let taken = [name("team"), name("team-2")];
        let chosen = choose(&name("team"), None, |wish| taken.contains(wish));
        assert_eq!(chosen, name("team-3"));
        let kept = choose(&name("team"), Some(&name("team-3")), |_| true);
        assert_eq!(kept, name("team-3"));
        let renamed = choose(&name("crew"), Some(&name("team-3")), |_| false);
        assert_eq!(renamed, name("crew"));
    }

    #[test]
    fn the_longest_name_has_room_for_a_number() {
        let long = name(&"ö".repeat(NAME_BYTES_MAX / 2));
        let chosen = choose(&long, None, |wish| *wish == long);
        assert!(chosen.as_str().ends_with("-2"), "{chosen}");
        assert!(chosen.as_str().len() <= NAME_BYTES_MAX);
        assert!(grew_out_of(&long, &chosen));
    }
}
