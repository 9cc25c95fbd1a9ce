//! What our words tell somebody to run, run as a shell takes it.

use super::{BINARY, Home, Ran};

/// Every command that is printed between backticks and has no open place can be pasted.
pub fn commands(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    let commands = parts.filter(|part| part.starts_with("heddle "));
    commands.map(ToOwned::to_owned).collect()
}

/// Pastes it into a shell of this home's person.
pub fn pasted(home: &Home, command: &str) -> Ran {
    pasted_by(home, None, command)
}

/// The same in the shell of an agent.
pub fn pasted_by(home: &Home, agent: Option<&str>, command: &str) -> Ran {
    let shell = format!("alias heddle={BINARY}\n{command}");
    let mut sh = std::process::Command::new("/bin/sh");
    sh.args(["-c", &shell]).env_clear();
    sh.env("HEDDLE_HOME", home.path()).env("USER", "tester");
    sh.envs(agent.map(|agent| ("HEDDLE_AGENT", agent)));
    Ran::from(sh.output().unwrap())
}
