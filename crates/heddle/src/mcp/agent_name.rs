//! The name of an agent that nobody named: the same for one client in one folder, always.

use std::path::Path;

use heddle_core::fingerprint::hex;
use heddle_core::names::AgentName;
use sha2::{Digest, Sha256};

/// Of each part at most this much is shown; the digest tells the rest apart.
const PART_CHARS_MAX: usize = 24;

/// `client-folder-1a2b`: for people the first two, for certainty the last.
pub(super) fn derived(client: &str, folder: &Path) -> Option<AgentName> {
    let path = folder.to_string_lossy();
    let digest = Sha256::digest(format!("{client}\0{path}").as_bytes());
    let leaf = folder.file_name().unwrap_or_default().to_string_lossy();
    let parts = [slug(client), slug(&leaf), hex(&digest[..2])];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    AgentName::parse(&parts.join("-")).ok()
}

/// Lower-case letters, digits and single dashes: what any name may hold.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for character in text.chars() {
        let plain = character.to_ascii_lowercase();
        if plain.is_ascii_alphanumeric() {
            slug.push(plain);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= PART_CHARS_MAX {
            break;
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(client: &str, folder: &str) -> String {
        derived(client, Path::new(folder)).unwrap().to_string()
    }

    #[test]
    fn one_client_in_one_folder_has_one_name_and_others_have_others() {
        let first = name("Claude Code", "/home/me/My Project");
        assert!(first.starts_with("claude-code-my-project-"), "{first}");
        assert_eq!(first, name("Claude Code", "/home/me/My Project"));
        for (client, folder) in [
            ("Claude Code", "/srv/My Project"),
            ("claude-code", "/home/me/My Project"),
            ("Codex", "/home/me/My Project"),
        ] {
            assert_ne!(first, name(client, folder));
        }
    }

    #[test]
    fn any_client_and_any_folder_give_a_name_that_can_be_one() {
        let long = "x".repeat(5_000);
        for client in ["", "日本", "a\0b\n", "--", "@#/", &long] {
            for folder in ["/", "", "/日本", "/a\nb", "/..", &long] {
                let name = name(client, folder);
                assert!(name.len() <= 2 * PART_CHARS_MAX + 6, "{name}");
            }
        }
    }
}
