//! The token of a folder: 32 random bytes, base64url, 0600, compared in constant time. The home has one
//! for its callers, a broker's folder one for its daemons.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use heddle_core::clock::Ids;
use subtle::ConstantTimeEq as _;

/// Never printed: it has no `Display`, and `Debug` says nothing.
pub struct LocalToken(String);

impl std::fmt::Debug for LocalToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalToken(…)")
    }
}

const TOKEN_BYTES: usize = 32;

/// What lies where a token is looked for.
enum Found {
    Token(LocalToken),
    Other,
    Nothing,
}

impl LocalToken {
    /// The token of the folder, minted on the first start.
    pub fn load_or_mint(path: &Path, ids: &dyn Ids) -> std::io::Result<Self> {
        match Self::load(path)? {
            Found::Token(token) => return Ok(token),
            // They must not keep the daemon down.
            Found::Other => {
                tracing::warn!(path = %path.display(), "a token was damaged; minted a new one, which callers must read again");
            }
            Found::Nothing => {}
        }
        Self::mint(path, ids)
    }

    /// The same of a file that a person has named: what is in it is theirs, and is never replaced. One that is no token
    /// keeps its mode, too; only a token is made private.
    pub fn load_named(path: &Path, ids: &dyn Ids) -> std::io::Result<Self> {
        match Self::look(path)? {
            Found::Token(_) => match Self::load(path)? {
                Found::Token(token) => Ok(token),
                // Somebody has changed it meanwhile.
                _ => Err(std::io::Error::other(format!(
                    "{}: it was changed while it was read",
                    path.display()
                ))),
            },
            Found::Nothing => Self::mint_once(path, ids),
            Found::Other => {
                let why = format!(
                    "{}: it holds no token (32 bytes in base64url, 43 letters), and was left as it is",
                    path.display()
                );
                Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why))
            }
        }
    }

    /// What is there, and nothing is changed by looking.
    fn look(path: &Path) -> std::io::Result<Found> {
        Self::read(path, |path| {
            // As it will be opened: never through a link (T-10).
            if std::fs::symlink_metadata(path)?.is_symlink() {
                return Err(std::io::Error::other("it is a link"));
            }
            crate::home::open_plain(path)
        })
    }

    /// The same of a file that is made private by it.
    fn load(path: &Path) -> std::io::Result<Found> {
        Self::read(path, crate::home::open_private)
    }

    fn read(
        path: &Path,
        open: impl FnOnce(&Path) -> std::io::Result<std::fs::File>,
    ) -> std::io::Result<Found> {
        use std::io::Read as _;
        match std::fs::symlink_metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Found::Nothing);
            }
            Err(error) => return Err(error),
        }
        let mut bytes = Vec::new();
        open(path)?.take(1024).read_to_end(&mut bytes)?;
        // Bytes that are no text are no token either.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let is_token = URL_SAFE_NO_PAD
            .decode(text)
            .is_ok_and(|bytes| bytes.len() == TOKEN_BYTES);
        Ok(if is_token {
            Found::Token(Self(text.to_owned()))
        } else {
            Found::Other
        })
    }

    fn mint(path: &Path, ids: &dyn Ids) -> std::io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        ids.fill(&mut bytes);
        let text = URL_SAFE_NO_PAD.encode(bytes);
        crate::home::write_private(path, &text)?;
        Ok(Self(text))
    }

    /// Brokers that share the file may start at the same moment: one of them makes the token, and all take that one.
    fn mint_once(path: &Path, ids: &dyn Ids) -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        ids.fill(&mut bytes);
        let own = path.with_extension(format!("{}.minted", URL_SAFE_NO_PAD.encode(bytes)));
        let minted = Self::mint(&own, ids).map_err(|error| {
            let folder = path.parent().unwrap_or(path).display();
            let why = format!("no token can be made in {folder}: {error}");
            std::io::Error::new(error.kind(), why)
        })?;
        // IMPORTANT: a link, which never replaces what is there; a rename would.
        let linked = std::fs::hard_link(&own, path);
        std::fs::remove_file(&own)?;
        match linked {
            Ok(()) => {
                if let Some(folder) = path.parent() {
                    std::fs::File::open(folder)?.sync_all()?;
                }
                Ok(minted)
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::load_named(path, ids)
            }
            Err(error) => Err(error),
        }
    }

    pub fn matches(&self, presented: &str) -> bool {
        self.0.as_bytes().ct_eq(presented.as_bytes()).into()
    }

    /// Whether the secret stands anywhere in this text.
    pub(crate) fn occurs_in(&self, text: &str) -> bool {
        text.contains(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use heddle_core::clock::ManualIds;

    use super::*;

    #[test]
    fn brokers_that_start_at_once_take_one_token_whoever_makes_it() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..20_u64 {
            let path = folder.path().join(format!("broker_token-{round}"));
            let start = std::sync::Barrier::new(8);
            let taken: Vec<String> = std::thread::scope(|scope| {
                let brokers: Vec<_> = (0..8_u64)
                    .map(|n| {
                        let (path, start) = (&path, &start);
                        scope.spawn(move || {
                            let ids = ManualIds::seeded(100 * round + n + 1);
                            start.wait();
                            LocalToken::load_named(path, &ids).unwrap().0
                        })
                    })
                    .collect();
                let brokers = brokers.into_iter();
                brokers.map(|broker| broker.join().unwrap()).collect()
            });
            let kept = std::fs::read_to_string(&path).unwrap();
            assert!(taken.iter().all(|token| *token == kept), "round {round}");
        }
        let nowhere = folder.path().join("nowhere");
        let refused = LocalToken::load_named(&nowhere.join("broker_token"), &ManualIds::seeded(1));
        let why = refused.unwrap_err().to_string();
        assert!(why.contains(nowhere.to_str().unwrap()), "{why}");
        // Nothing else is left there.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 20);
    }

    #[test]
    fn a_token_is_kept_across_starts_and_replaced_when_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("local_token");
        let ids = ManualIds::seeded(3);
        let first = LocalToken::load_or_mint(&path, &ids).unwrap();
        let again = LocalToken::load_or_mint(&path, &ids).unwrap();
        assert!(again.matches(&first.0));
        assert!(!again.matches(""));
        assert!(!again.matches(&first.0[..first.0.len() - 1]));
        for damage in [&b"short"[..], b"", b"\xff\xfe\0\x80", &[0xc3; 2048]] {
            std::fs::write(&path, damage).unwrap();
            let minted = LocalToken::load_or_mint(&path, &ids).unwrap();
            assert!(!minted.matches(&first.0) && !minted.matches("short"));
            let kept = LocalToken::load_or_mint(&path, &ids).unwrap();
            assert!(kept.matches(&minted.0), "minted anew at every start");
        }
        let minted = LocalToken::load_or_mint(&path, &ids).unwrap();
        assert_eq!(format!("{minted:?}"), "LocalToken(…)");
    }

    #[test]
    fn a_file_that_a_person_has_named_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let ids = ManualIds::seeded(4);
        let minted = LocalToken::load_named(&path, &ids).unwrap();
        let again = LocalToken::load_named(&path, &ids).unwrap();
        assert!(again.matches(&minted.0));
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let make = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
        };
        // A token that others may read is one that is made private.
        make(0o644);
        assert!(
            LocalToken::load_named(&path, &ids)
                .unwrap()
                .matches(&minted.0)
        );
        assert_eq!(mode(), 0o600);
        make(0o644);
        for theirs in [&b"s3cret of mine"[..], b"", b"\xff\xfe\0\x80"] {
            std::fs::write(&path, theirs).unwrap();
            let refused = LocalToken::load_named(&path, &ids).unwrap_err();
            assert!(refused.to_string().contains("left as it is"), "{refused}");
            assert_eq!(std::fs::read(&path).unwrap(), theirs);
            assert_eq!(mode(), 0o644, "what is refused is left as it is");
        }
    }
}
