//! `heddle broker members`: who is enrolled, from the tables themselves.

use std::collections::BTreeMap;

use heddle_broker::members::{Members as _, Standing};
use heddle_broker::storage::{AnyStorage, Presence as _, Present, StorageError};
use heddle_core::clock::WallMs;
use serde::Serialize;

use super::jobs_place::{Errand, Place, found, meshes, send};
use crate::cli::{CliError, Context, table};

#[derive(Serialize)]
struct Answer {
    members: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    mesh: String,
    member: String,
    member_id: String,
    role: &'static str,
    key_fingerprint: String,
    enrolled_at: String,
    revoked_at: Option<String>,
    blocked_at: Option<String>,
    online: bool,
    last_seen: Option<String>,
}

struct ReadAll {
    wanted: Option<String>,
}

pub fn members(context: &Context, place: &Place) -> Result<(), CliError> {
    let wanted = context.mesh.clone();
    let members = found(context, send(context, place, ReadAll { wanted })?)?;
    context.print(&Answer { members }, describe)
}

impl Errand for ReadAll {
    type Answer = Option<Vec<Row>>;

    fn writes(&self) -> bool {
        false
    }

    async fn run(self, storage: &AnyStorage) -> Result<Self::Answer, StorageError> {
        let Some(meshes) = meshes(storage, self.wanted.as_deref()).await? else {
            return Ok(None);
        };
        let mut members = Vec::new();
        for (mesh, name) in meshes {
            // Whoever serves the tables moves their lease time on. A database knows since when nobody has; of a file, what was
            // written last is what we know.
            let now = match storage {
                AnyStorage::Postgres(database) => database.lease_now(mesh).await?,
                AnyStorage::Sqlite(file) => file.lease_time(mesh).await?,
            };
            let present = storage.presence(mesh, now).await?;
            let present: BTreeMap<_, _> =
                present.into_iter().map(|one| (one.member, one)).collect();
            for standing in storage.standings(mesh).await? {
                let present = present.get(&standing.member);
                members.push(view(name.as_str(), standing, present));
            }
        }
        Ok(Some(members))
    }
}

fn view(mesh: &str, standing: Standing, present: Option<&Present>) -> Row {
    Row {
        mesh: mesh.to_owned(),
        member: standing.name.to_string(),
        member_id: standing.member.to_string(),
        role: standing.role.as_str(),
        key_fingerprint: standing.key.fingerprint(),
        enrolled_at: standing.enrolled_at.to_rfc3339(),
        revoked_at: standing.revoked_at.map(WallMs::to_rfc3339),
        blocked_at: standing.blocked_at.map(WallMs::to_rfc3339),
        online: present.is_some_and(|present| present.is_online),
        last_seen: present
            .and_then(|present| present.since)
            .map(WallMs::to_rfc3339),
    }
}

fn describe(answer: &Answer) -> String {
    if answer.members.is_empty() {
        return "no member has a key here; those who come with the broker's token are not listed\n"
            .to_owned();
    }
    let head = ["MESH", "MEMBER", "ROLE", "KEY", "LAST SEEN"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for member in &answer.members {
        let seen = match (&member.revoked_at, &member.blocked_at, &member.last_seen) {
            (Some(at), _, _) => format!("shut out {at}"),
            (None, Some(at), _) => format!("blocked {at}"),
            (None, None, _) if member.online => "here".to_owned(),
            (None, None, Some(at)) => at.clone(),
            (None, None, None) => "never".to_owned(),
        };
        rows.push(vec![
            member.mesh.clone(),
            member.member.clone(),
            member.role.to_owned(),
            member.key_fingerprint.clone(),
            seen,
        ]);
    }
    table(&rows)
}
