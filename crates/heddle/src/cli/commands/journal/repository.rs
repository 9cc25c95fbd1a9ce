//! Which folder the repository is: of a linked worktree the main one, so that all checkouts share one journal.

use std::path::{Path, PathBuf};

const LINK_BYTES_MAX: u64 = 4096;

/// The top of the checkout that a folder lies in; None outside of a repository.
pub fn checkout(here: &Path) -> Option<&Path> {
    here.ancestors().find(|folder| folder.join(".git").exists())
}

/// The main checkout of a linked worktree (`git worktree add`); None for every other folder.
pub fn main_of(checkout: &Path) -> Option<PathBuf> {
    let link = line_of(&checkout.join(".git"))?;
    let own = checkout.join(link.strip_prefix("gitdir:")?.trim());
    // A submodule has a link too, and no such file.
    let common = own.join(line_of(&own.join("commondir"))?);
    let common = common.canonicalize().ok()?;
    let is_plain = common.file_name().is_some_and(|name| name == ".git");
    is_plain.then(|| common.parent().map(Path::to_owned))?
}

fn line_of(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_link = metadata.is_file() && metadata.len() <= LINK_BYTES_MAX;
    let text = is_link.then(|| std::fs::read_to_string(path).ok())??;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linked_worktree_knows_its_main_checkout_and_a_submodule_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let put = |name: &str, text: &str| {
            let path = top.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("main/.git/worktrees/w/commondir", "../..\n");
        put("w/.git", "gitdir: ../main/.git/worktrees/w\n");
        put("w/src/a.rs", "");
        put("main/.git/modules/m/HEAD", "x");
        put("main/m/.git", "gitdir: ../.git/modules/m\n");
        put("odd/.git", "gitdir: nowhere\n");
        let linked = checkout(&top.join("w/src")).map(Path::to_owned);
        assert_eq!(linked, Some(top.join("w")));
        assert_eq!(main_of(&top.join("w")), Some(top.join("main")));
        for other in ["main", "main/m", "odd", "nothing"] {
            assert_eq!(main_of(&top.join(other)), None, "{other}");
        }
    }
}
