//! `effects.toml` as it stands: read whenever something is decided, so that what a person has written counts
//! from the next question on.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use heddle_registrar::policy::Policy;
use rustix::fs::OFlags;

/// A policy file beyond this is not one.
const POLICY_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
#[error("effects.toml: {0}")]
pub struct PolicyFileError(String);

#[derive(Debug, Clone)]
pub struct PolicyFile {
    path: PathBuf,
}

impl PolicyFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// What is wrong with it, for those who look.
    pub fn trouble(&self) -> Option<String> {
        Some(format!("effects.toml: {}", self.fault()?))
    }

    /// The same without its name, for a list that has that already.
    pub fn fault(&self) -> Option<String> {
        let PolicyFileError(why) = self.read().err()?;
        // The parser draws; a list of sentences does not.
        let words: Vec<&str> = why.split_whitespace().collect();
        Some(format!(
            "{}; no effect is approved or registered until it is mended",
            words.join(" ")
        ))
    }

    /// A file that is not there says nothing: then a person is asked.
    pub fn read(&self) -> Result<Policy, PolicyFileError> {
        let wrong = |why: String| PolicyFileError(why);
        let mut options = OpenOptions::new();
        // A pipe in its place must not hold the daemon up.
        options.read(true);
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = match options.open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match std::fs::symlink_metadata(&self.path) {
                    // Nothing bears the name at all.
                    Err(none) if none.kind() == ErrorKind::NotFound => Ok(Policy::default()),
                    // What somebody wrote is elsewhere, and not there now: that is no permission.
                    Ok(about) if about.is_symlink() => {
                        Err(wrong("it is a link, and leads to no file".to_owned()))
                    }
                    _ => Err(wrong(error.to_string())),
                };
            }
            opened => opened.map_err(|error| wrong(error.to_string()))?,
        };
        let is_file = file.metadata().is_ok_and(|about| about.is_file());
        if !is_file {
            return Err(wrong("it is no regular file".to_owned()));
        }
        let mut text = String::new();
        let read = file.take(POLICY_BYTES_MAX + 1).read_to_string(&mut text);
        let read = read.map_err(|error| wrong(error.to_string()))?;
        if read as u64 > POLICY_BYTES_MAX {
            return Err(wrong("the file is larger than 1 MB".to_owned()));
        }
        Policy::parse(&text).map_err(|error| wrong(error.reason()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_file_of_now_and_a_bad_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects.toml");
        let file = PolicyFile::new(path.clone());
        assert_eq!(file.read().unwrap(), Policy::default());
        std::fs::write(&path, "request_ttl_hours = 3").unwrap();
        assert_eq!(file.read().unwrap().request_ttl_hours, 3);
        std::fs::write(&path, "surprise = 3").unwrap();
        let error = file.read().unwrap_err().to_string();
        assert_eq!(error.matches("effects.toml").count(), 1, "{error}");
        let long = format!("# {}", "x".repeat(1 << 20));
        std::fs::write(&path, long).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("larger"));
    }

    #[test]
    fn a_link_that_leads_nowhere_is_a_file_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, there) = (
            folder.path().join("effects.toml"),
            folder.path().join("there"),
        );
        std::os::unix::fs::symlink(&there, &path).unwrap();
        let file = PolicyFile::new(path);
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("leads to no file"), "{error}");
        assert!(file.trouble().is_some());
        std::fs::write(&there, "request_ttl_hours = 3").unwrap();
        assert_eq!(file.read().unwrap().request_ttl_hours, 3);
    }

    #[test]
    fn a_pipe_in_its_place_is_told_and_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects.toml");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let error = PolicyFile::new(path).read().unwrap_err().to_string();
        assert!(error.contains("regular file"), "{error}");
    }
}
