//! Meshes and members for people.

use heddle_wire::ipc::{MeshInfo, MeshList};

use crate::cli::text::table;

fn state(connected: bool) -> &'static str {
    if connected {
        "connected"
    } else {
        "not connected"
    }
}

pub fn list(list: &MeshList) -> String {
    let mut rows = vec![["MESH", "YOU", "BROKER", ""].map(str::to_owned).to_vec()];
    for mesh in &list.meshes {
        rows.push(vec![
            mesh.mesh.clone(),
            format!("@{}", mesh.member),
            mesh.broker.clone(),
            state(mesh.connected).to_owned(),
        ]);
    }
    table(&rows)
}

pub fn info(info: &MeshInfo) -> String {
    let mut text = format!(
        "mesh {} ({})\n  broker  {}, {}\n",
        info.mesh,
        info.mesh_id,
        info.broker,
        state(info.connected)
    );
    if let Some(name) = info
        .name_at_broker
        .as_ref()
        .filter(|name| **name != info.mesh)
    {
        text.push_str(&format!(
            "  there   called {name} by whoever runs the broker\n"
        ));
    }
    if let Some(url) = &info.url {
        text.push_str(&format!("  reached at {url}\n"));
    }
    let unknown = if info.stale {
        "role not known now"
    } else {
        "no key here"
    };
    let role = info.role.as_deref().unwrap_or(unknown);
    text.push_str(&format!("  you     @{}, {role}\n", info.member));
    if info.stale {
        text.push_str("  the broker is out of reach: its members are not known now\n");
        return text;
    }
    if info.members.is_empty() {
        text.push_str("  its members have no keys; they come with the broker's token\n");
        return text;
    }
    let head = ["MEMBER", "ROLE", "KEY", "LAST SEEN"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for member in &info.members {
        let seen = match (&member.revoked_at, &member.blocked_at, &member.last_seen) {
            (Some(at), _, _) => format!("shut out {at}"),
            (None, Some(at), _) => format!("blocked {at}"),
            (None, None, _) if member.online => "here".to_owned(),
            (None, None, Some(at)) => at.clone(),
            (None, None, None) => "never".to_owned(),
        };
        rows.push(vec![
            format!("@{}", member.member),
            member.role.clone(),
            member.key_fingerprint.clone(),
            seen,
        ]);
    }
    text.push('\n');
    text.push_str(&table(&rows));
    text
}
