//! Who may approve an effect, in words; and a command that is theirs to run. A name that begins with @ is of another
//! home.

use crate::shell::options;

/// Stands in a command for who is to run it, where nobody of this home can be named: `--agent PERSON`. Whoever prints the
/// command leaves the option out, and does not put the caller in its place.
pub const PERSON: &str = "PERSON";
/// Stands in a command that is run in another home for what this mesh is called there.
pub const MESH: &str = "MESH";
/// Names that are told; behind them their number.
const NAMES_MAX: usize = 3;

/// ` who may approve it (carol or @bob)`; without names where nobody knows them.
pub fn in_words(approvers: &[String]) -> String {
    let named = &approvers[..approvers.len().min(NAMES_MAX)];
    let more = match approvers.len() - named.len() {
        0 => String::new(),
        more => format!(" or {more} more"),
    };
    let there = match here(approvers) {
        Some(_) => String::new(),
        None => format!("; {MESH} is what this mesh is called there"),
    };
    match named {
        [] => " who may approve it".to_owned(),
        named => format!(" who may approve it ({}{more}{there})", named.join(" or ")),
    }
}

/// Who of them is in this home.
pub fn here(approvers: &[String]) -> Option<&str> {
    let mut names = approvers.iter().map(String::as_str);
    names.find(|name| !name.starts_with('@'))
}

/// The command as one of them runs it. What stands behind `--` is another command's.
pub fn run_by(approvers: &[String], command: &str) -> String {
    let (command, rest) = match command.split_once(" -- ") {
        Some((command, rest)) => (command, format!(" -- {rest}")),
        None => (command, String::new()),
    };
    let whose = match here(approvers) {
        Some(name) => options(&[("--agent", name)]),
        None if approvers.is_empty() => format!(" --agent {PERSON}"),
        None => format!(" --agent {PERSON} --mesh {MESH}"),
    };
    format!("{command}{whose}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persons_command_names_the_person_where_that_one_is_here() {
        let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let command = "heddle effect compensate k -- COMMAND";
        assert_eq!(
            run_by(&names(&["@bob", "carol"]), command),
            "heddle effect compensate k --agent carol -- COMMAND"
        );
        assert_eq!(
            run_by(&names(&["@bob"]), "heddle effect approve env_1"),
            "heddle effect approve env_1 --agent PERSON --mesh MESH"
        );
        assert_eq!(
            run_by(&[], "heddle effect approve env_1"),
            "heddle effect approve env_1 --agent PERSON"
        );
        assert_eq!(
            in_words(&names(&["@bob"])),
            " who may approve it (@bob; MESH is what this mesh is called there)"
        );
        assert_eq!(in_words(&[]), " who may approve it");
        assert_eq!(
            in_words(&names(&["a", "b", "@c", "d", "e"])),
            " who may approve it (a or b or @c or 2 more)"
        );
    }
}
