//! A mesh that was joined is written into `config.toml`: one table at its end, the rest as it was.

use std::path::{Path, PathBuf};

use crate::config::{Config, MeshConfig};
use crate::home::{read_plain, write_private};

/// The table as it stands in the file.
fn table(mesh: &MeshConfig) -> String {
    let text = |value: &str| toml::Value::String(value.to_owned()).to_string();
    let mut table = format!(
        "[[mesh]]\nname = {}\nurl = {}\n",
        text(mesh.name.as_str()),
        text(&mesh.url)
    );
    let path = |file: &Option<PathBuf>| file.as_ref().map(|file| file.display().to_string());
    let more = [
        ("ca_file", path(&mesh.ca_file)),
        ("id", mesh.id.map(|id| id.to_string())),
        ("broker_id", mesh.broker_id.map(|id| id.to_string())),
        ("member", mesh.member.as_ref().map(ToString::to_string)),
        ("member_id", mesh.member_id.map(|id| id.to_string())),
        ("key_file", path(&mesh.key_file)),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            table.push_str(&format!("{name} = {}\n", text(&value)));
        }
    }
    table
}

/// Adds the mesh, unless it is there already. The file is replaced as a whole: a crash leaves the old one
/// or the new one.
pub(super) fn add(path: &Path, mesh: &MeshConfig) -> Result<(), String> {
    let shown = path.display();
    let old = match read_plain(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{shown} cannot be read: {error}")),
    };
    let config: Config =
        toml::from_str(&old).map_err(|error| format!("{shown} is not understood: {error}"))?;
    if config.mesh.iter().any(|there| there.id == mesh.id) {
        return Ok(());
    }
    let mut new = old;
    if !new.is_empty() && !new.ends_with('\n') {
        new.push('\n');
    }
    if !new.is_empty() {
        new.push('\n');
    }
    new.push_str(&table(mesh));
    // What would not be understood at the next start is not written.
    let read: Result<Config, _> = toml::from_str(&new);
    match read
        .map_err(|error| error.to_string())
        .and_then(|config| config.check())
    {
        Ok(()) => {}
        Err(why) => return Err(format!("{shown} cannot take the mesh: {why}")),
    }
    write_private(path, &new).map_err(|error| format!("{shown} cannot be written: {error}"))
}

/// Writes where a mesh is now, and which broker hosts it; the rest of the file stays as it was.
pub(super) fn renew(path: &Path, mesh: &MeshConfig) -> Result<(), String> {
    let shown = path.display();
    let old = read_plain(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let new = renewed(&old, mesh);
    let read: Result<Config, _> = toml::from_str(&new);
    let config = read.map_err(|error| format!("{shown} is not understood: {error}"))?;
    let found = config.mesh.iter().find(|there| there.id == mesh.id);
    let is_written = found.is_some_and(|there| {
        there.url == mesh.url
            && there.broker_id == mesh.broker_id
            && there.member_id == mesh.member_id
            && there.key_file == mesh.key_file
            && there.ca_file == mesh.ca_file
    });
    if !is_written || config.check().is_err() {
        return Err(format!(
            "{shown} cannot take the broker's new id; take the [[mesh]] out of it"
        ));
    }
    if new == old {
        return Ok(());
    }
    write_private(path, &new).map_err(|error| format!("{shown} cannot be written: {error}"))
}

/// The lines `url`, `ca_file` and `broker_id` of the table that names the mesh by its id.
fn renewed(old: &str, mesh: &MeshConfig) -> String {
    let value = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let id = mesh.id.map(|id| id.to_string()).unwrap_or_default();
    let key_of = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let lines: Vec<&str> = old.split_inclusive('\n').collect();
    let is_head = |line: &&str| line.trim_start().starts_with('[');
    let ours = lines
        .iter()
        .position(|line| key_of(line) == "id" && line.contains(&value(&id)));
    let Some(ours) = ours else {
        return old.to_owned();
    };
    let from = lines[..ours].iter().rposition(is_head).unwrap_or(0);
    let to = lines[ours..].iter().position(is_head);
    let to = to.map_or(lines.len(), |far| ours + far);
    let mut new = String::with_capacity(old.len());
    for (place, line) in lines.iter().enumerate() {
        let key = key_of(line);
        let ca_file = mesh.ca_file.as_ref().map(|file| file.display().to_string());
        let fresh = match key.as_str() {
            _ if place < from || place >= to => None,
            "url" => Some(mesh.url.clone()),
            // It stands behind the url, and an old one goes.
            "ca_file" => continue,
            "broker_id" => mesh.broker_id.map(|id| id.to_string()),
            _ => None,
        };
        match (&fresh, key.as_str(), ca_file) {
            (Some(url), "url", Some(ca_file)) => new.push_str(&format!(
                "url = {}\nca_file = {}\n",
                value(url),
                value(&ca_file)
            )),
            (Some(fresh), ..) => new.push_str(&format!("{key} = {}\n", value(fresh))),
            (None, ..) => new.push_str(line),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use heddle_core::ids::{BrokerId, MemberId, MeshId};
    use heddle_core::names::{MemberName, MeshName};
    use ulid::Ulid;

    use super::*;

    fn mesh(name: &str, id: u128) -> MeshConfig {
        MeshConfig {
            name: MeshName::parse(name).unwrap(),
            url: "ws://127.0.0.1:7/".to_owned(),
            token_file: None,
            ca_file: None,
            member: Some(MemberName::parse("größe").unwrap()),
            id: Some(MeshId(Ulid(id))),
            broker_id: Some(BrokerId(Ulid(2))),
            member_id: Some(MemberId(Ulid(3))),
            key_file: Some("keys/x.key".into()),
        }
    }

    #[test]
    fn a_mesh_is_added_once_and_the_rest_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let before = "# mine\n[outbox]\ndisk_budget_mb = 5 # small";
        for text in ["", before] {
            std::fs::write(&path, text).unwrap();
            add(&path, &mesh("alice", 1)).unwrap();
            let once = std::fs::read_to_string(&path).unwrap();
            assert!(once.starts_with(text));
            add(&path, &mesh("alice", 1)).unwrap();
            add(&path, &mesh("another-name", 1)).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), once);
            let config = Config::load(&path).unwrap();
            assert_eq!(config.mesh, [mesh("alice", 1)]);
        }
        add(&path, &mesh("bob", 2)).unwrap();
        assert_eq!(Config::load(&path).unwrap().mesh.len(), 2);
        std::fs::remove_file(&path).unwrap();
        add(&path, &mesh("alice", 1)).unwrap();
        assert_eq!(Config::load(&path).unwrap().mesh.len(), 1);
    }

    #[test]
    fn a_mesh_that_has_a_new_broker_is_renewed_and_no_other_line_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "# mine\n[outbox]\ndisk_budget_mb = 5 # small\n").unwrap();
        for (name, id) in [("alice", 1), ("bob", 2), ("carol", 3)] {
            add(&path, &mesh(name, id)).unwrap();
        }
        let before = std::fs::read_to_string(&path).unwrap();
        renew(&path, &mesh("bob", 2)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        let moved = MeshConfig {
            url: "ws://127.0.0.1:8/".to_owned(),
            broker_id: Some(BrokerId(Ulid(77))),
            ..mesh("bob", 2)
        };
        renew(&path, &moved).unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!(
            config.mesh,
            [mesh("alice", 1), moved.clone(), mesh("carol", 3)]
        );
        let after = std::fs::read_to_string(&path).unwrap();
        assert!(after.starts_with("# mine\n[outbox]\ndisk_budget_mb = 5 # small\n"));
        assert_eq!(after.lines().count(), before.lines().count());
        // Authorities come, change and go with it.
        for ca_file in [Some("/a/ca.pem"), Some("/b/\"ca\".pem"), None] {
            let trusting = MeshConfig {
                url: "wss://localhost:8/".to_owned(),
                ca_file: ca_file.map(PathBuf::from),
                ..moved.clone()
            };
            renew(&path, &trusting).unwrap();
            let config = Config::load(&path).unwrap();
            assert_eq!(config.mesh, [mesh("alice", 1), trusting, mesh("carol", 3)]);
        }
        renew(&path, &moved).unwrap();
        // One that is not there is not added.
        assert!(renew(&path, &mesh("dave", 4)).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
    }

    #[test]
    fn what_would_not_be_understood_later_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let taken = "[[mesh]]\nname = \"alice\"\nurl = \"ws://127.0.0.1:1/\"\n";
        for text in ["not toml", taken] {
            std::fs::write(&path, text).unwrap();
            assert!(add(&path, &mesh("alice", 1)).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
