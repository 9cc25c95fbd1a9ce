//! What leaves the machine: no user, no process id, no absolute path. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

/// Fields of documents that say who or what ran here, at any depth; as they are without case, `_` and `-`.
const PRIVATE_KEYS: [&str; 8] = [
    "pid",
    "ppid",
    "processid",
    "user",
    "userid",
    "username",
    "hostname",
    "agentid",
];
/// What stands in place of a path outside of the repository.
const PATH: &str = "<path>";
/// Where absolute paths begin on one machine or another; the caller adds what its own `/` holds.
const ROOTS: [&str; 30] = [
    "Applications",
    "Library",
    "System",
    "Users",
    "Volumes",
    "bin",
    "boot",
    "builds",
    "data",
    "dev",
    "etc",
    "export",
    "home",
    "lib",
    "lib64",
    "media",
    "mnt",
    "nix",
    "opt",
    "private",
    "proc",
    "root",
    "run",
    "sbin",
    "snap",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
];

#[derive(Debug)]
pub(crate) struct Privacy {
    /// The repository; paths below it become relative ones.
    repository: String,
    roots: BTreeSet<String>,
    pub(crate) stripped: u64,
}

impl Privacy {
    pub(crate) fn new(repository: &Path, more_roots: impl IntoIterator<Item = String>) -> Self {
        let mut roots: BTreeSet<String> = ROOTS.iter().map(|r| (*r).to_owned()).collect();
        roots.extend(more_roots);
        let repository = repository
            .to_string_lossy()
            .trim_end_matches('/')
            .to_owned();
        let top = repository
            .strip_prefix('/')
            .and_then(|p| p.split('/').next());
        roots.extend(top.map(str::to_owned));
        roots.remove("");
        Self {
            repository,
            roots,
            stripped: 0,
        }
    }

    /// `w_<pid>-<nonce>` without the pid: still one name for one start of one process.
    pub(crate) fn writer(writer: &str) -> String {
        match writer.strip_prefix("w_").and_then(|w| w.split_once('-')) {
            Some((_, nonce)) if !nonce.is_empty() => format!("w_{nonce}"),
            _ => {
                let hash = crate::blobs::sha256_hex(writer.as_bytes());
                format!("w_{}", &hash[..12])
            }
        }
    }

    /// The agent, unless it is only the user's name again.
    pub(crate) fn agent(agent: &str, user: Option<&str>) -> String {
        let is_user = user == Some(agent);
        let shown = if is_user { "anonymous" } else { agent };
        shown.to_owned()
    }

    pub(crate) fn document(&mut self, document: Value) -> Value {
        match document {
            Value::String(text) => match self.text(&text) {
                Cow::Borrowed(_) => Value::String(text),
                Cow::Owned(stripped) => Value::String(stripped),
            },
            Value::Array(items) => {
                let items = items.into_iter().map(|item| self.document(item));
                Value::Array(items.collect())
            }
            Value::Object(fields) => Value::Object(self.fields(fields)),
            other => other,
        }
    }

    fn fields(&mut self, fields: Map<String, Value>) -> Map<String, Value> {
        let mut kept = Map::new();
        for (name, value) in fields {
            if is_private(&name) {
                self.stripped += 1;
                continue;
            }
            let mut shown = self.text(&name).into_owned();
            // Two paths may look alike without what was taken from them; neither value goes.
            while kept.contains_key(&shown) {
                shown.push('\'');
            }
            let value = self.document(value);
            kept.insert(shown, value);
        }
        kept
    }

    /// A text without its absolute paths.
    pub(crate) fn text<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let mut out: Option<String> = None;
        let mut copied = 0;
        let mut at = 0;
        while at < text.len() {
            let Some(end) = self.path_at(text, at) else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                continue;
            };
            let path = &text[at..end];
            let shown = self.inside(path).unwrap_or(PATH);
            let out = out.get_or_insert_with(String::new);
            out.push_str(&text[copied..at]);
            out.push_str(shown);
            self.stripped += 1;
            copied = end;
            at = end;
        }
        match out {
            None => Cow::Borrowed(text),
            Some(mut out) => {
                out.push_str(&text[copied..]);
                Cow::Owned(out)
            }
        }
    }

    /// What a path is called from the repository on.
    fn inside<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(&self.repository)?;
        match rest.strip_prefix('/') {
            Some("") | None if rest.len() <= 1 => Some("."),
            Some(inside) => Some(inside),
            None => None,
        }
    }

    /// Where an absolute path that begins here ends.
    fn path_at(&self, text: &str, at: usize) -> Option<usize> {
        let rest = &text[at..];
        let before = &text[..at];
        let bytes = rest.as_bytes();
        let is_drive = bytes.len() > 2
            && bytes[0].is_ascii_alphabetic()
            && bytes[1] == b':'
            && matches!(bytes[2], b'\\' | b'/')
            && bytes.get(3) != Some(&b'/')
            && !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        let is_share = rest.starts_with("\\\\")
            && bytes.get(2).is_some_and(u8::is_ascii_alphanumeric)
            && rest[2..].contains('\\');
        if is_drive || is_share {
            return Some(at + whole_end(rest, 2, '\\'));
        }
        if let Some(end) = home_of_somebody(rest, before) {
            return Some(at + end);
        }
        if bytes[0] != b'/' || !may_begin(before, rest) {
            return None;
        }
        if before.ends_with("file://") || before.ends_with("file:") {
            // With or without a host before the path.
            return Some(at + end_of(rest, 1));
        }
        // Two slashes are as good as one.
        let slashes = rest.len() - rest.trim_start_matches('/').len();
        let names = &rest[slashes..];
        let first = names.split(['/', ' ', '\t', '\n', '"', '\'']).next()?;
        let is_deep = names[first.len()..].starts_with('/');
        // `//net/share/x` names a machine.
        let is_net = slashes == 2 && first.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_path = is_deep && (is_net || self.roots.contains(first));
        is_path.then(|| at + whole_end(rest, slashes, '/'))
    }
}

fn is_private(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| !matches!(c, '_' | '-')).collect();
    PRIVATE_KEYS.contains(&plain.to_ascii_lowercase().as_str())
}

/// `~alice`, with or without a path behind it: a name of a person. `~/x` names nobody.
fn home_of_somebody(rest: &str, before: &str) -> Option<usize> {
    let name = rest.strip_prefix('~')?;
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_middle = before.ends_with(|c: char| is_word(c) || matches!(c, '/' | '~'));
    (begins && !is_middle).then(|| end_of(rest, 1))
}

/// A slash behind a word is the middle of a relative path or of a URL; behind `-I`, `file://` and signs it is not.
fn may_begin(before: &str, rest: &str) -> bool {
    let is_flag = before.len() >= 2
        && before.ends_with(|c: char| c.is_ascii_alphabetic())
        && before[..before.len() - 1].ends_with('-')
        && !before[..before.len() - 2].ends_with(|c: char| c.is_alphanumeric());
    // `_/home/ann/x_` is a path that somebody wants to be seen.
    let is_emphasis = before.strip_suffix('_').is_some_and(|before| {
        !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
    });
    let is_middle = !is_emphasis
        && before
            .ends_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~'));
    // `vscode://file/home/ann/x`: no host stands there.
    let is_file = before.ends_with("://file");
    // Behind a scheme stands a host, not a path.
    let is_url = rest.starts_with("//")
        && before.ends_with(':')
        && before[..before.len() - 1].ends_with(|c: char| c.is_ascii_alphanumeric())
        && !before.ends_with("file:");
    is_flag || is_file || before.ends_with("file://") || !(is_middle || is_url)
}

/// The same where names may have blanks in them: a path goes on behind one if its last name has no ending yet and the next
/// word goes deeper. Rather a word too many than a piece of a path.
fn whole_end(rest: &str, from: usize, slash: char) -> usize {
    let mut end = end_of(rest, from);
    loop {
        let last = rest[..end].rsplit(slash).next().unwrap_or_default();
        let Some(behind) = rest[end..].strip_prefix(' ') else {
            return end;
        };
        let word = &behind[..end_of(behind, 0)];
        let begins = word.starts_with(|c: char| c.is_alphanumeric());
        let is_drive = word.as_bytes().get(1) == Some(&b':');
        let is_url = behind[word.len()..].starts_with("://");
        let is_done = last.is_empty() || last.contains('.');
        if is_done || !begins || is_drive || is_url || !word.contains(slash) {
            return end;
        }
        end += 1 + word.len();
    }
}

fn end_of(rest: &str, from: usize) -> usize {
    let is_end = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '"' | '\''
                    | '`'
                    | '<'
                    | '>'
                    | '|'
                    | '('
                    | ')'
                    | '['
                    | ']'
                    | '{'
                    | '}'
                    | ','
                    | ';'
                    | ':'
            )
    };
    rest[from..]
        .find(is_end)
        .map_or(rest.len(), |length| from + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn privacy() -> Privacy {
        Privacy::new(Path::new("/work/repo"), ["scratch".to_owned()])
    }

    #[test]
    fn absolute_paths_go_and_routes_urls_and_relative_paths_stay() {
        for (text, expected) in [
            ("see /home/alice/notes.txt please", "see <path> please"),
            ("/work/repo/src/a.rs:12 fails", "src/a.rs:12 fails"),
            ("in /work/repo now", "in . now"),
            ("/work/repository/x", "<path>"),
            ("cc -I/usr/include/x -L/home/a/lib", "cc -I<path> -L<path>"),
            ("PATH=/usr/bin:/home/a/bin", "PATH=<path>:<path>"),
            ("file:///home/a/x", "file:<path>"),
            ("see file://box/home/alice/x.", "see file:<path>"),
            ("//home/alice/x and ///usr/lib/y", "<path> and <path>"),
            ("cd ~alice/work, or ~bob", "cd <path>, or <path>"),
            ("about ~5 minutes, a~b, x/~y", "about ~5 minutes, a~b, x/~y"),
            (
                "// home is where /usr/lib/x is",
                "// home is where <path> is",
            ),
            ("C:\\Users\\alice\\x.txt, D:/data/y", "<path>, <path>"),
            ("\\\\server\\share\\x", "<path>"),
            ("/scratch/job/1", "<path>"),
            ("\"/tmp/x\"", "\"<path>\""),
            (
                "POST /v1/send and GET /v1/inbox",
                "POST /v1/send and GET /v1/inbox",
            ),
            (
                "https://example.org/home/page",
                "https://example.org/home/page",
            ),
            (
                "src/home/page.rs and ./var/x",
                "src/home/page.rs and ./var/x",
            ),
            ("either/or and/or 1/2 /", "either/or and/or 1/2 /"),
            ("ünï /home/ü/ö ende", "ünï <path> ende"),
            ("~/notes", "~/notes"),
            ("/home/ann/My Documents/tax 2025/x.pdf, ok", "<path>, ok"),
            ("D:\\a b\\c is it", "<path> is it"),
            ("see /home/ann/x.txt and/or y", "see <path> and/or y"),
            ("//net/share/x and // net/share", "<path> and // net/share"),
            ("vscode://file/home/ann/x:3", "vscode://file<path>:3"),
            ("_/home/ann/x_ and a_/home/b", "_<path> and a_/home/b"),
            ("run /opt/tool https://a.b/c", "run <path> https://a.b/c"),
        ] {
            assert_eq!(privacy().text(text), expected, "{text}");
        }
    }

    #[test]
    fn documents_lose_users_pids_and_paths_at_every_depth_and_nothing_else() {
        let mut privacy = privacy();
        let told = privacy.document(json!({
            "title": "t", "pid": 4711, "n": 3, "PID": 1, "userName": "a", "process-id": 2, "agent_id": "x",
            "run": {"user": "alice", "log": "/home/alice/log", "ppid": "1", "user_story": "as a user"},
            "files": {"/home/a/x": 1, "/home/b/x": 2, "src/y": 3},
        }));
        assert_eq!(
            told,
            json!({
                "title": "t", "n": 3,
                "run": {"log": "<path>", "user_story": "as a user"},
                "files": {"<path>": 1, "<path>'": 2, "src/y": 3},
            })
        );
        assert_eq!(privacy.stripped, 10);
    }

    #[test]
    fn a_writer_keeps_its_nonce_and_loses_its_pid() {
        assert_eq!(Privacy::writer("w_31416-9f3c2a0b1c2d"), "w_9f3c2a0b1c2d");
        assert!(!Privacy::writer("alice on host").contains("alice"));
        assert_eq!(Privacy::agent("alice", Some("alice")), "anonymous");
        assert_eq!(Privacy::agent("planner", Some("alice")), "planner");
    }
}
