//! Every command that our words tell a person to run exists, with the options that they name.
//!
//! The words are collected from the sources and the documents: whatever stands in backticks and
//! begins with `heddle`, every `next: heddle …`, and the next steps of the status.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;

/// Verbs that other parts bring; named already, checked as soon as they are there.
const AWAITED: [&str; 2] = ["daemon", "doctor"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// The commands in a text: up to the closing backtick, or to the end of the line or literal.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (begins, ends) in [
        ("`heddle ", &['`'][..]),
        ("next: heddle ", &['\n', '\\', '"'][..]),
        ("\"heddle ", &['"'][..]),
        ("\n$ heddle ", &['\n'][..]),
    ] {
        for behind in text.split(begins).skip(1) {
            // Over several lines it is prose that happens to begin with our name.
            match behind.find(ends).map(|end| &behind[..end]) {
                Some(words) if !words.contains('\n') => found.push(words.to_owned()),
                _ => {}
            }
        }
    }
    found
}

/// What is wrong with a command, if anything is.
fn fault(words: &str, root: &Command) -> Option<String> {
    let mut command = root;
    let mut globals: Vec<&str> = root
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .filter_map(|argument| argument.get_long())
        .collect();
    globals.extend(["help", "version"]);
    let mut is_descending = true;
    for (index, word) in words.split_whitespace().enumerate() {
        let word = word.trim_end_matches([',', ';', '.']);
        if let Some(option) = word.strip_prefix("--").filter(|option| !option.is_empty()) {
            let option = option.split('=').next().unwrap_or(option);
            let has_it = command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(option));
            if !has_it && !globals.contains(&option) {
                return Some(format!("{} has no --{option}", command.get_name()));
            }
            is_descending = false;
            continue;
        }
        match command.find_subcommand(word).filter(|_| is_descending) {
            Some(verb) => command = verb,
            // `a | b` and `A|B` name several; `VERB` stands for one.
            None if index == 0 && !AWAITED.contains(&word) => {
                return Some(format!("there is no verb {word}"));
            }
            None if index == 0 => return None,
            None if command.has_subcommands() && is_descending && is_plain(word) => {
                return Some(format!("{} has no verb {word}", command.get_name()));
            }
            None => is_descending = false,
        }
    }
    None
}

fn is_plain(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

#[test]
fn every_command_in_our_words_exists() {
    let root_command = Cli::command();
    let mut paths = Vec::new();
    for folder in [
        "core",
        "wire",
        "journal",
        "store",
        "registrar",
        "broker",
        "daemon",
        "heddle",
    ] {
        files(
            &root().join("crates").join(folder).join("src"),
            "rs",
            &mut paths,
        );
    }
    files(&root().join("docs"), "md", &mut paths);
    paths.push(root().join("README.md"));
    let mut checked = 0;
    let mut faults = Vec::new();
    for path in paths {
        if path.ends_with("cli/next_steps.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for words in commands(&text) {
            checked += 1;
            if let Some(fault) = fault(&words, &root_command) {
                faults.push(format!("{}: `heddle {words}`: {fault}", path.display()));
            }
        }
    }
    assert!(checked > 30, "only {checked} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_check_sees_what_is_wrong() {
    let root = Cli::command();
    for good in [
        "up",
        "send @x 'm' --wait",
        "topic create NAME",
        "logs -n 3",
        "up --json",
    ] {
        assert_eq!(fault(good, &root), None, "{good}");
    }
    for bad in [
        "fly",
        "status --colour",
        "topic burn",
        "send --detach",
        "up --home2",
    ] {
        assert!(fault(bad, &root).is_some(), "{bad}");
    }
    let text = "Run `heddle fly` now; next: heddle walk\nnot heddle alone";
    assert_eq!(commands(text), ["fly", "walk"]);
}
