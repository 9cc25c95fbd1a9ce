//! `heddle effect`: dangerous effects that happen once, however often anybody retries.

mod answer;
mod approve;
mod check_url;
mod compensate;
mod lock;
mod look;
mod next_step;
mod patience;
mod process;
pub mod record;
mod report;
mod run;
mod signals;
mod text;
mod verify;

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use heddle_core::fingerprint::hex;
use heddle_core::shell::options;
use sha2::{Digest as _, Sha256};

use self::record::Record;
use crate::cli::error::exit;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Ask for approval of an effect
    Request(approve::RequestArgs),
    /// Approve a request; the nonce is shown once
    Approve(approve::ApproveArgs),
    /// Deny a request that waits, or revoke an approval that was not used
    #[command(alias = "revoke")]
    Deny(approve::DenyArgs),
    /// Register an effect, run its command once, verify it; a retry prints the stored result
    Run(run::RunArgs),
    /// What became of a key
    Status(look::StatusArgs),
    /// Give the verdict about an effect whose command ended
    Verify(verify::VerifyArgs),
    /// Make up for an effect that failed its verification, once
    Compensate(compensate::CompensateArgs),
    /// The newest effects and requests
    List(look::ListArgs),
    /// Attempts, refusals and failures
    Log(look::LogArgs),
    /// Whether the store can keep the promise
    SurfaceCheck(look::SurfaceArgs),
}

impl Verb {
    /// What changes something, by its name and the key that it says; a request's id names its key to who decides only.
    fn changes(&self) -> Option<(&'static str, Option<String>)> {
        Some(match self {
            Self::Request(args) => ("request", Some(args.key().to_owned())),
            Self::Approve(_) => ("approve", None),
            Self::Deny(_) => ("deny", None),
            Self::Run(args) => ("run", Some(args.key().to_owned())),
            Self::Verify(args) => ("verify", Some(args.key().to_owned())),
            Self::Compensate(args) => ("compensate", Some(args.key().to_owned())),
            Self::Status(_) | Self::List(_) | Self::Log(_) | Self::SurfaceCheck(_) => return None,
        })
    }
}

/// What who decides has refused is in the journal of the repository as well.
pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let asked = args.verb.changes();
    let done = of(context, args);
    if let (Err(error), Some((verb, key))) = (&done, asked)
        && let Some(problem) = &error.problem
    {
        let who = (verb, context.agent.as_deref());
        Record::open(context).refused(key.as_deref(), who, problem);
    }
    done.map_err(with_code)
}

/// Every refusal names its code (DESIGN §9), to people too: it is what they find in the documents and in the log.
fn with_code(mut error: CliError) -> CliError {
    let code = error.problem.as_ref().map(|problem| problem.code.as_str());
    let is_ours = |code: &&str| code.bytes().all(|it| it.is_ascii_uppercase() || it == b'_');
    if let Some(code) = code.filter(is_ours)
        && !error.message.contains(code)
    {
        error.message = format!("{} ({code})", error.message);
    }
    error
}

fn of(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Request(args) => approve::request(context, &args),
        Verb::Approve(args) => approve::approve(context, &args),
        Verb::Deny(args) => approve::deny(context, &args),
        Verb::Run(args) => run::run(context, &args),
        Verb::Status(args) => look::status(context, &args),
        Verb::Verify(args) => verify::verify(context, &args),
        Verb::Compensate(args) => compensate::compensate(context, &args),
        Verb::List(args) => look::list(context, &args),
        Verb::Log(args) => look::log(context, &args),
        Verb::SurfaceCheck(args) => look::surface_check(context, &args),
    }
}

/// A person's word about what began and was never ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Resolve {
    /// It did not happen: run it again
    Again,
    /// It happened, and went well: do not run it
    Done,
    /// It happened, and did not go well: do not run it (--exit-code says how)
    Failed,
}

impl Resolve {
    /// As the journal calls it.
    fn step(self) -> &'static str {
        match self {
            Self::Again => "resolved_again",
            Self::Done => "resolved_done",
            Self::Failed => "resolved_failed",
        }
    }
}

const COMMAND_DOMAIN: &str = "heddle.command.v1";

/// What names an effect.
#[derive(Debug, ClapArgs)]
struct EffectArgs {
    /// The key: one of these has one effect, for ever
    #[arg(long)]
    key: String,
    /// What is done: deploy, migrate, publish, pay, …
    #[arg(long)]
    op: String,
    /// To what it is done
    #[arg(long)]
    target: String,
    /// The file that is deployed; its SHA-256 is part of what is approved
    #[arg(long, value_name = "FILE")]
    artifact: Option<PathBuf>,
    /// The run that it belongs to
    #[arg(long)]
    run: Option<String>,
}

impl EffectArgs {
    fn artifact_hash(&self) -> Result<Option<String>, CliError> {
        self.artifact.as_deref().map(hash_of).transpose()
    }

    /// A refusal whose commands name our file: the daemon has only its hash, and leaves the place open.
    fn named_in(&self, mut error: CliError) -> CliError {
        let Some(file) = &self.artifact else {
            return error;
        };
        let file = options(&[("--artifact", &file.display().to_string())]);
        let fill = |text: &str| text.replace(" --artifact FILE", &file);
        error.next = error.next.as_deref().map(fill);
        if let Some(problem) = &mut error.problem {
            problem.next = fill(&problem.next);
        }
        error
    }
}

/// What binds a key to the command that it is run with: two commands with one digest are one command.
fn command_hash(words: &[String]) -> Option<String> {
    if words.is_empty() {
        return None;
    }
    let all: Vec<&str> = std::iter::once(COMMAND_DOMAIN)
        .chain(words.iter().map(String::as_str))
        .collect();
    let text = serde_json::to_string(&all).ok()?;
    Some(hex(&Sha256::digest(text)))
}

/// SHA-256 of a file, read in pieces. Of a regular file only, and no further than it was long when it was opened: what
/// has no end has no hash.
fn hash_of(path: &Path) -> Result<String, CliError> {
    let wrong = |why: String| {
        CliError::new(exit::USAGE, format!("{}: {why}", path.display()))
            .next("Name a file that can be read; nothing was registered.")
    };
    let failed = |error: std::io::Error| wrong(error.to_string());
    // A pipe that nobody writes to would hold up its opening.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(nonblock).open(path);
    let file = file.map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(wrong("an artifact is a regular file".to_owned()));
    }
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    let mut file = file.take(metadata.len());
    let mut left = metadata.len();
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 if left > 0 => return Err(wrong("it became shorter while it was read".to_owned())),
            0 => return Ok(hex(&digest.finalize())),
            read => {
                left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
                digest.update(&buffer[..read]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{command_hash, hash_of};

    #[test]
    fn a_command_is_known_by_its_words_and_by_where_each_ends() {
        let hash = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command_hash(&words)
        };
        assert_eq!(hash(&[]), None);
        // sha256 of ["heddle.command.v1","echo","a"]
        assert_eq!(
            hash(&["echo", "a"]).unwrap(),
            "736541db80299b7a80a88a3febbb23db2b5bd435ceace6f9e3a641ecf0e5652f"
        );
        assert_ne!(hash(&["echo", "a b"]), hash(&["echo", "a", "b"]));
    }

    #[test]
    fn an_artifact_is_known_by_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "hello").unwrap();
        let hash = hash_of(&file).unwrap();
        assert_eq!(
            hash,
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        );
        for none in [folder.path(), std::path::Path::new("/dev/zero")] {
            let refused = hash_of(none).unwrap_err();
            assert!(refused.message.contains("regular file"), "{refused:?}");
        }
    }
}
