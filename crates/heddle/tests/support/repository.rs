//! A repository of a test's own, with a home beside it: `heddle` run inside it, as a person does.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Home, Ran};

pub struct Repository {
    pub home: Home,
    folder: tempfile::TempDir,
}

impl Repository {
    /// It has a `.git`, and no journal yet.
    pub fn new() -> Self {
        let repository = Self {
            home: Home::new(),
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(repository.at(".git")).unwrap();
        repository
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn at(&self, inside: &str) -> PathBuf {
        self.path().join(inside)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.home.command(args);
        Ran::from(command.current_dir(self.path()).output().unwrap())
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let words: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
        self.run(&words).ok().json()
    }

    /// A verb of `heddle journal`.
    pub fn journal(&self, args: &[&str]) -> Ran {
        self.journal_in(self.path(), args)
    }

    pub fn journal_in(&self, folder: &Path, args: &[&str]) -> Ran {
        let words: Vec<&str> = ["journal"].iter().chain(args).copied().collect();
        let mut command = self.home.command(&words);
        Ran::from(command.current_dir(folder).output().unwrap())
    }

    pub fn journal_json(&self, args: &[&str]) -> Value {
        let words: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
        self.journal(&words).ok().json()
    }

    /// The same with nowhere to print to.
    pub fn run_on_full(&self, args: &[&str]) -> Ran {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = self.home.command(args);
        command.current_dir(self.path()).stdout(full.unwrap());
        Ran::from(command.output().unwrap())
    }

    /// The newest segment of the journal.
    pub fn segment(&self) -> PathBuf {
        let files = std::fs::read_dir(self.at(".heddle/events")).unwrap();
        let files = files.map(|entry| entry.unwrap().path());
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
        files.filter(is_segment).max().unwrap()
    }

    /// The same with standard output closed, as a shell's `>&-` does it.
    pub fn run_on_closed(&self, args: &[&str]) -> Ran {
        let plain = self.home.command(args);
        let mut command = std::process::Command::new("/bin/sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" >&-"])
            .arg(plain.get_program())
            .args(args)
            .env_clear()
            .current_dir(self.path());
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        Ran::from(command.output().unwrap())
    }

    /// A plan of that id, as it is from now on.
    pub fn append(&self, id: &str, payload: &Value) {
        let payload = payload.to_string();
        let words = ["append", "--type", "plan", "--id", id];
        let more = ["--action", "update", "--payload", &payload];
        self.journal(&[&words[..], &more[..]].concat()).ok();
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}
