//! What lies in a place of a home and does not belong there: a folder, a link or a pipe where a file should be, a file
//! where a folder should be, another's database. One table says what belongs where, and every verb that meets such a thing
//! says the same of it. None of them opens it, and the step that is named destroys nothing.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use heddle_core::shell::quoted;
use heddle_store::misplaced as beside;
use heddle_wire::ipc::Finding;

use super::look::wrong;
use crate::config::Config;

/// Something in a place where it does not belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The name of the place in the home; that of the database for what lies beside one.
    pub file: &'static str,
    pub why: String,
    /// What a person can do about it.
    pub next: String,
}

/// What belongs into a place, if anything lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belongs {
    File,
    /// A file that a person writes and may keep elsewhere.
    FileOrLink,
    Folder,
    /// It may lie on another disk.
    FolderOrLink,
    Socket,
}

/// The places that a start cannot do without, but for the databases; with what follows when the thing is moved away.
const PLACES: [(&str, Belongs, &str); 12] = [
    ("heddle.lock", Belongs::File, MADE_ANEW),
    ("config.toml", Belongs::FileOrLink, SETTINGS),
    (
        "hooks.toml",
        Belongs::File,
        "without it no hook runs, so put the policy itself there",
    ),
    (
        "local_token",
        Belongs::File,
        "the next start makes a new one, which callers over HTTP must read again",
    ),
    ("http.port", Belongs::File, MADE_ANEW),
    ("daemon.sock", Belongs::Socket, MADE_ANEW),
    (
        "logs",
        Belongs::Folder,
        "the next start makes a new folder; only the words of before are not in it",
    ),
    (
        "logs/daemon.jsonl",
        Belongs::File,
        "the next start begins a new log",
    ),
    (
        "logs/up.log",
        Belongs::File,
        "the next start begins a new log",
    ),
    ("blobs", Belongs::Folder, BLOBS),
    (
        "keys",
        Belongs::FolderOrLink,
        "put the folder keys of the last backup there (`heddle daemon restore FILE` does): others know this home by its keys",
    ),
    (
        "effects",
        Belongs::FolderOrLink,
        "put the folder effects of the last copy of the stopped home there",
    ),
];

const MADE_ANEW: &str = "the next start makes a new one";
const SETTINGS: &str =
    "put the settings themselves there; without the file every setting has its default";
const BLOBS: &str = "put the folder that lay there back (a backup FILE has it as FILE.blobs). Without it the next start makes \
    an empty one, and `heddle doctor` names the files whose bytes are missing";

const DATABASES: [&str; 3] = ["data.db", "broker.db", "effects.db"];

/// Everything that lies in a wrong place, but for the databases and what is beside them.
pub(super) fn elsewhere(home: &Path) -> Vec<Misplaced> {
    let found = PLACES.into_iter().filter_map(|(file, belongs, then)| {
        let path = home.join(file);
        let why = why(&path, belongs)?;
        let next = next(home, &path, belongs, then);
        Some(Misplaced { file, why, next })
    });
    found.collect()
}

/// The same, for the doctor.
pub(super) fn findings(home: &Path) -> Vec<Finding> {
    let found = elsewhere(home).into_iter();
    let found = found.map(|one| wrong(one.file, one.why, one.next));
    found.collect()
}

/// The first thing that keeps a start from going on, of what a start with these settings opens: with a broker
/// elsewhere, its own file is not among them.
pub fn first_of(home: &Path, config: &Config) -> Option<Misplaced> {
    if let Some(found) = elsewhere(home).into_iter().next() {
        return Some(found);
    }
    let is_used = |name: &&str| *name != "broker.db" || config.broker.url.is_none();
    DATABASES.into_iter().filter(is_used).find_map(|file| {
        let why = beside(&home.join(file))?.why;
        let next = not_a_file_next(home, file);
        Some(Misplaced { file, why, next })
    })
}

/// The same for whoever has not read the settings yet, or cannot.
pub fn first_in(home: &Path) -> Option<Misplaced> {
    let config = Config::load(&home.join("config.toml")).unwrap_or_default();
    first_of(home, &config)
}

fn why(path: &Path, belongs: Belongs) -> Option<String> {
    let found = path.symlink_metadata().ok()?;
    let kind = found.file_type();
    let wanted = match belongs {
        Belongs::File | Belongs::FileOrLink => "a file",
        Belongs::Folder | Belongs::FolderOrLink => "a folder",
        Belongs::Socket => "a socket",
    };
    let fits = match belongs {
        Belongs::File => kind.is_file(),
        Belongs::Folder => kind.is_dir(),
        Belongs::Socket => kind.is_socket(),
        Belongs::FileOrLink => path.is_file(),
        Belongs::FolderOrLink => path.is_dir(),
    };
    if fits {
        return None;
    }
    if kind.is_symlink() {
        let to = std::fs::read_link(path).unwrap_or_default();
        let to = to.display();
        return Some(if path.exists() {
            format!("it is a symbolic link to {to}, and {wanted} must lie there")
        } else {
            format!("it is a symbolic link to {to}, where nothing is")
        });
    }
    let is = if kind.is_dir() {
        "a folder"
    } else if kind.is_file() {
        "a file"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "something else"
    };
    Some(format!("it is {is}, and {wanted} must lie there"))
}

fn next(home: &Path, path: &Path, belongs: Belongs, then: &str) -> String {
    let shown = pasted(path);
    let moved = pasted(&moved(path));
    let to = std::fs::read_link(path).ok().map(|to| target(home, to));
    let is_one = |to: &PathBuf| match belongs {
        Belongs::Folder | Belongs::FolderOrLink => to.is_dir(),
        // What we make anew ourselves is nothing that a link may lead to: its target is somebody else's.
        Belongs::File | Belongs::FileOrLink | Belongs::Socket => false,
    };
    match to {
        Some(to) if is_one(&to) => itself(path, &to),
        _ => format!("Move it away (`mv {shown} {moved}`); {then}."),
    }
}

/// As a shell takes it, whatever is in the name.
fn pasted(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Where something lies that was moved away.
fn moved(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".moved");
    PathBuf::from(name)
}

/// How what a link leads to comes into its place.
fn itself(link: &Path, to: &Path) -> String {
    let (shown, to) = (pasted(link), pasted(to));
    format!(
        "Put what it leads to in the place of the link: `rm {shown} && mv {to} {shown}` (the first takes the link away, \
         and nothing else). A home elsewhere is named with HEDDLE_HOME."
    )
}

/// What helps with a folder, a link or the like in the place of a database, or beside it.
pub fn not_a_file_next(home: &Path, file: &str) -> String {
    let database = home.join(file);
    let path = beside(&database).map_or_else(|| database.clone(), |found| found.path);
    let (shown, moved) = (pasted(&path), pasted(&moved(&path)));
    let is_beside = path != database;
    let link = std::fs::read_link(&path).ok();
    match link.map(|to| target(home, to)) {
        Some(to) if to.is_file() => itself(&path, &to),
        _ if is_beside => format!(
            "Move it away (`mv {shown} {moved}`) and leave {file} where it is: `heddle up` goes on with it. Where \
             the last daemon did not stop in order, its newest changes stood in the file {file}-wal: if you have that, \
             put it back first."
        ),
        Some(to) => format!(
            "Bring back what lay at {}, or take the link away (`rm {shown}`) and {}",
            to.display(),
            without(file)
        ),
        None => format!("Move it away (`mv {shown} {moved}`) and {}", without(file)),
    }
}

/// A link names its target from where it lies.
fn target(home: &Path, to: PathBuf) -> PathBuf {
    if to.is_absolute() { to } else { home.join(to) }
}

/// What helps with a database that belongs elsewhere.
pub fn foreign_next(home: &Path, file: &str) -> String {
    let path = home.join(file);
    let (shown, moved) = (pasted(&path), pasted(&moved(&path)));
    format!(
        "Move it away (`mv {shown} {moved}`), or to where it belongs, and {}",
        without(file)
    )
}

/// How a home goes on in which this file is missing.
fn without(file: &str) -> &'static str {
    match file {
        "data.db" => {
            "put the last backup in its place: `heddle daemon restore FILE`, where FILE is what `heddle doctor --backup \
             FILE` made. Without one, move broker.db, effects.db and the folder effects away as well to begin anew."
        }
        "broker.db" => {
            "put the last backup in its place: `heddle daemon restore FILE --only broker`, where FILE is what `heddle \
             doctor --backup FILE` made. Without one, `heddle up` makes a new one: everything in data.db stays, and what \
             that broker alone had (guests, work that waited in queues) is gone."
        }
        _ => {
            "put a copy of effects.db from the last copy of the stopped home in its place; without it nobody can say which \
             effects have happened, so nothing begins it anew by itself."
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn pipe(path: &Path) {
        let owner = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, owner, 0).unwrap();
    }

    #[test]
    fn every_place_is_judged_by_what_belongs_there_and_nothing_is_ever_to_be_deleted() {
        for (file, belongs, _) in PLACES {
            let home = tempfile::tempdir().unwrap();
            assert_eq!(elsewhere(home.path()), [], "{file}");
            let path = home.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            pipe(&path);
            let found = first_in(home.path()).unwrap();
            assert_eq!(found.file, file);
            assert!(found.why.contains("a pipe"), "{found:?}");
            let away = format!("mv {0} {0}.moved", path.display());
            assert!(found.next.contains(&away), "{found:?}");
            assert!(!found.next.contains("rm "), "{found:?}");
            std::fs::remove_file(&path).unwrap();
            let wants_folder = matches!(belongs, Belongs::Folder | Belongs::FolderOrLink);
            if wants_folder {
                std::fs::create_dir(&path).unwrap();
                assert_eq!(elsewhere(home.path()), [], "{file}");
            } else {
                std::fs::create_dir(&path).unwrap();
                assert!(first_in(home.path()).unwrap().why.contains("a folder"));
            }
        }
    }

    #[test]
    fn a_command_can_be_pasted_whatever_the_home_is_called() {
        let above = tempfile::tempdir().unwrap();
        let home = above.path().join("my home's");
        std::fs::create_dir(&home).unwrap();
        pipe(&home.join("local_token"));
        let found = first_in(&home).unwrap();
        let command = found.next.split('`').nth(1).unwrap();
        let ran = std::process::Command::new("/bin/sh")
            .args(["-c", command])
            .status();
        assert!(ran.unwrap().success(), "{found:?}");
        assert!(home.join("local_token.moved").exists(), "{found:?}");
        assert_eq!(first_in(&home), None);
    }

    #[test]
    fn a_link_is_followed_where_a_person_may_have_put_one() {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().join("real.toml");
        std::fs::write(&real, "").unwrap();
        symlink(&real, home.path().join("config.toml")).unwrap();
        assert_eq!(first_in(home.path()), None);
        std::fs::remove_file(&real).unwrap();
        let found = first_in(home.path()).unwrap();
        assert!(found.why.contains("where nothing is"), "{found:?}");
        std::fs::create_dir(home.path().join("elsewhere")).unwrap();
        std::fs::remove_file(home.path().join("config.toml")).unwrap();
        symlink("elsewhere", home.path().join("blobs")).unwrap();
        let found = first_in(home.path()).unwrap();
        assert_eq!(found.file, "blobs");
        assert!(
            found.next.contains("rm ") && found.next.contains("elsewhere"),
            "{found:?}"
        );
    }

    #[test]
    fn what_lies_beside_a_database_is_moved_away_and_the_database_never_is() {
        for suffix in ["-wal", "-shm", "-journal"] {
            let home = tempfile::tempdir().unwrap();
            let name = format!("broker.db{suffix}");
            std::fs::write(home.path().join("broker.db"), "x").unwrap();
            std::fs::create_dir(home.path().join(&name)).unwrap();
            let found = first_in(home.path()).unwrap();
            assert_eq!(found.file, "broker.db");
            assert!(found.why.contains(&name), "{found:?}");
            let path = home.path().join(&name);
            let away = format!("mv {0} {0}.moved", path.display());
            assert!(found.next.contains(&away), "{found:?}");
            let database = format!("mv {}/broker.db ", home.path().display());
            assert!(!found.next.contains(&database), "{found:?}");
            let url = "[broker]\nurl = \"ws://127.0.0.1:1/\"\n";
            std::fs::write(home.path().join("config.toml"), url).unwrap();
            assert_eq!(first_in(home.path()), None, "it is not used then");
        }
    }
}
