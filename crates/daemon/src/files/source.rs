//! A file of this machine that is to be shared: opened without following a link, read to its end, and
//! refused if it changed meanwhile (T-16).

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heddle_core::error_code::ErrorCode;
use heddle_core::limits::FILE_BYTES_MAX;
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    before: Metadata,
    read: u64,
}

impl Source {
    /// `home` is the home's own folder, whole: nothing of it is ever shared.
    pub(crate) fn open(path: &str, home: &Path) -> Result<Self, Problem> {
        let path = PathBuf::from(path);
        if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(refused(&path, "`from` is not an absolute path")
                .next("Give the whole path, or send the content as content_base64."));
        }
        let folder = path.parent().map(Path::canonicalize);
        if let Some(Ok(folder)) = folder
            && folder.starts_with(home)
        {
            return Err(refused(&path, "it lies in Heddle's own folder")
                .next("Copy what you want to share to another place first."));
        }
        // Not waiting for a pipe, and not becoming the owner of a terminal.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| match error {
            Errno::LOOP => refused(&path, "it is a link").next("Share the file that it leads to."),
            error => refused(&path, &io::Error::from(error).to_string()),
        })?;
        let file = File::from(file);
        let before = file
            .metadata()
            .map_err(|error| refused(&path, &error.to_string()))?;
        if !before.is_file() {
            return Err(refused(&path, "it is not a regular file"));
        }
        if before.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused(&path, "it belongs to another user")
                .next("Copy it to a file of your own, then share that."));
        }
        if before.len() > FILE_BYTES_MAX {
            let detail = format!("it has more than {FILE_BYTES_MAX} bytes");
            return Err(Problem::new(ErrorCode::PayloadTooLarge, detail)
                .next("Share it in parts; nothing was kept and no id was consumed."));
        }
        Ok(Self {
            path,
            file,
            before,
            read: 0,
        })
    }

    /// To be asked at the end: whether what was read is the file as it was all the time.
    pub(crate) fn check_unchanged(&self) -> Result<(), Problem> {
        let after = self
            .file
            .metadata()
            .map_err(|error| refused(&self.path, &error.to_string()))?;
        let stamp = |found: &Metadata| (found.len(), found.mtime(), found.mtime_nsec());
        if stamp(&after) == stamp(&self.before) && self.read == after.len() {
            return Ok(());
        }
        Err(refused(&self.path, "it changed while it was read")
            .next("Share it again when nobody writes to it."))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One byte more than there was shows that it grew; a file that never ends is not read for ever.
        let most = (self.before.len() + 1).saturating_sub(self.read);
        let most = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self.file.read(&mut buffer[..most])?;
        self.read += read as u64;
        Ok(read)
    }
}

fn refused(path: &Path, why: &str) -> Problem {
    from_wire::invalid(format!("{} cannot be shared: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn open(path: &Path) -> Result<Source, Problem> {
        Source::open(path.to_str().unwrap(), Path::new("/nowhere"))
    }

    #[test]
    fn t_16_only_own_regular_files_outside_of_the_home_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "abc").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let mut text = String::new();
        let mut source = open(&at("file")).unwrap();
        source.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        assert!(source.check_unchanged().is_ok());
        for (path, why) in [
            (at("link"), "link"),
            (at("pipe"), "regular"),
            (folder.path().to_owned(), "regular"),
            (PathBuf::from("/dev/zero"), "regular"),
            (PathBuf::from("relative"), "absolute"),
            (at("missing"), "No such file"),
            (at("a\0b"), "absolute"),
        ] {
            let problem = open(&path).unwrap_err();
            assert!(problem.detail.contains(why), "{path:?}: {}", problem.detail);
            assert_eq!(problem.status, 400);
        }
        let home = folder.path().canonicalize().unwrap();
        let problem = Source::open(at("file").to_str().unwrap(), &home).unwrap_err();
        assert!(problem.detail.contains("own folder"), "{}", problem.detail);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let changes: [fn(&Path); 2] = [
            |path| {
                let mut file = std::fs::File::options().append(true).open(path).unwrap();
                file.write_all(b"more").unwrap();
            },
            |path| std::fs::File::create(path).unwrap().set_len(1).unwrap(),
        ];
        for change in changes {
            std::fs::write(&path, "abcdef").unwrap();
            let mut source = open(&path).unwrap();
            let mut some = [0; 3];
            source.read_exact(&mut some).unwrap();
            change(&path);
            let _ = source.read_to_end(&mut Vec::new());
            let problem = source.check_unchanged().unwrap_err();
            assert!(problem.detail.contains("changed"), "{}", problem.detail);
        }
        // Says that it is empty, and is not.
        let mut source = open(Path::new("/proc/self/status")).unwrap();
        let _ = source.read_to_end(&mut Vec::new());
        assert!(source.check_unchanged().is_err());
    }
}
