//! What a person names as input, up to a limit: nobody reads without end, and nobody waits for a pipe that was named as a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use heddle_daemon::home::open_plain;

/// A regular file, opened without waiting.
pub fn open(path: &Path) -> io::Result<File> {
    open_plain(path)
}

/// All of a regular file.
pub fn file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    all(open(path)?, bytes_max)
}

/// All of what comes, as of standard input.
pub fn all(reader: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than the most tells that there is more.
    reader.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let sentence = format!("it has more than {bytes_max} bytes, which is the most");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, sentence));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_too_many_a_device_and_a_pipe_are_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(file(&path, 5).unwrap(), b"12345");
        assert!(file(&path, 4).unwrap_err().to_string().contains("4 bytes"));
        assert!(all(io::repeat(7), 1 << 16).is_err());
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for other in [Path::new("/dev/zero"), &pipe, folder.path()] {
            assert!(file(other, 5).is_err(), "{}", other.display());
        }
    }
}
