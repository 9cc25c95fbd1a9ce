//! An effect whose command appends a line to a file: how often it ran is how many lines are there.

use std::path::{Path, PathBuf};

use super::effect_proxy::said;
use super::{Home, Ran, wait_until};

/// The side effect: a line in a file.
pub struct Side {
    pub home: Home,
    pub command: String,
}

impl Side {
    pub fn new() -> Self {
        let home = Home::new();
        let file = home.path().with_file_name("side");
        // IMPORTANT: the line comes last. Whoever sees it may kill the runner, and what prints after that dies of the
        // broken pipe: it does not live on, and is truly unknown.
        let command = format!("echo deployed; echo x >> {}", file.display());
        Self { home, command }
    }

    pub fn lines(&self) -> usize {
        let file = self.home.path().with_file_name("side");
        std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
    }

    pub fn args<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        let mut args = vec![
            "effect", "run", "--json", "--key", "k", "--op", "deploy", "--target", "prod",
        ];
        args.extend(options);
        args.extend(["--", "/bin/sh", "-c", &self.command]);
        args
    }

    /// Kills the runner while its command waits for the file that is returned.
    pub fn lose_the_runner(&mut self) -> PathBuf {
        let go = self.home.path().with_file_name("go");
        let wait = format!("; while [ ! -e {} ]; do sleep 0.05; done", go.display());
        self.command.push_str(&wait);
        let mut child = self.home.command(&self.args(&[])).spawn().unwrap();
        wait_until("the side effect", || self.lines() == 1);
        child.kill().unwrap();
        child.wait().unwrap();
        go
    }

    pub fn run(&self, options: &[&str]) -> Ran {
        self.home.cli(&self.args(options))
    }

    /// What its status says.
    pub fn status(&self) -> String {
        said(&self.home.cli(&["effect", "status", "k", "--json"]).ok())
    }

    /// Lets the command of a lost runner go, and waits until nobody knows how it ended.
    pub fn let_it_end(&self, go: &Path) {
        std::fs::write(go, "").unwrap();
        wait_until("the command to end", || self.status() == "unknown");
    }
}
