//! Who may approve an effect, in words; and a command that is theirs to run. A name that begins with @ is of another
//! home, which calls this mesh otherwise: there it is named by its id, which every home takes behind `--mesh`.

use crate::ids::MeshId;
use crate::shell::options;

/// Stands in a command for who is to run it, where nobody of this home can be named: `--agent PERSON`. Whoever prints the
/// command leaves the option out, and does not put the caller in its place.
pub const PERSON: &str = "PERSON";
/// Stands in a command that is run in another home for what this mesh is called there, where who decides is of an earlier
/// version and has not told its id.
pub const MESH: &str = "MESH";
/// Names that are told; behind them their number.
const NAMES_MAX: usize = 3;

/// ` who may approve it (carol or @bob)`; without names where nobody knows them. `mesh` is its id, or nothing.
pub fn in_words(approvers: &[String], mesh: &str) -> String {
    let named = &approvers[..approvers.len().min(NAMES_MAX)];
    let more = match approvers.len() - named.len() {
        0 => String::new(),
        more => format!(" or {more} more"),
    };
    let there = match here(approvers) {
        None if mesh.is_empty() => format!("; {MESH} is what this mesh is called there"),
        _ => String::new(),
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
pub fn run_by(approvers: &[String], mesh: &str, command: &str) -> String {
    match here(approvers) {
        Some(name) => with(command, &options(&[("--agent", name)])),
        None if approvers.is_empty() => with(command, &format!(" --agent {PERSON}")),
        None => run_there(mesh, command),
    }
}

/// The command as somebody runs it in another home.
pub fn run_there(mesh: &str, command: &str) -> String {
    let mesh = if mesh.is_empty() { MESH } else { mesh };
    with(command, &format!(" --agent {PERSON} --mesh {mesh}"))
}

/// Whether this command is one of another home.
pub fn is_run_there(command: &str) -> bool {
    let mesh = command.rsplit_once(" --mesh ").map(|(_, mesh)| mesh);
    mesh.is_some_and(|mesh| mesh == MESH || mesh.parse::<MeshId>().is_ok())
}

fn with(command: &str, options: &str) -> String {
    match command.split_once(" -- ") {
        Some((command, rest)) => format!("{command}{options} -- {rest}"),
        None => format!("{command}{options}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persons_command_names_the_person_where_that_one_is_here() {
        let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let command = "heddle effect compensate k -- COMMAND";
        assert_eq!(
            run_by(&names(&["@bob", "carol"]), "", command),
            "heddle effect compensate k --agent carol -- COMMAND"
        );
        assert_eq!(
            run_by(&names(&["@bob"]), "", "heddle effect approve env_1"),
            "heddle effect approve env_1 --agent PERSON --mesh MESH"
        );
        let id = "01M7H2CQZ63R4KAJ95MD5BAFGJ";
        let there = run_by(&names(&["@bob"]), id, "heddle effect approve env_1");
        assert_eq!(
            there,
            format!("heddle effect approve env_1 --agent PERSON --mesh {id}")
        );
        assert!(is_run_there(&there) && is_run_there("heddle peers --mesh MESH"));
        assert!(!is_run_there("heddle peers --mesh team") && !is_run_there("heddle peers"));
        assert_eq!(
            in_words(&names(&["@bob"]), id),
            " who may approve it (@bob)"
        );
        assert_eq!(
            run_by(&[], id, "heddle effect approve env_1"),
            "heddle effect approve env_1 --agent PERSON"
        );
        assert_eq!(
            in_words(&names(&["@bob"]), ""),
            " who may approve it (@bob; MESH is what this mesh is called there)"
        );
        assert_eq!(in_words(&[], ""), " who may approve it");
        assert_eq!(
            in_words(&names(&["a", "b", "@c", "d", "e"]), ""),
            " who may approve it (a or b or @c or 2 more)"
        );
    }
}
