//! The meshes of this home.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::{MemberName, MeshName};
use rusqlite::{Connection, Row, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMesh {
    pub mesh: MeshId,
    pub name: MeshName,
    /// Who we are in it.
    pub member: MemberId,
    pub member_name: MemberName,
    /// `None` for the broker inside this process.
    pub broker_url: Option<String>,
    pub now: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mesh {
    pub mesh: MeshId,
    pub name: MeshName,
    pub member: MemberId,
    pub member_name: MemberName,
    pub broker_url: Option<String>,
    pub created_at: WallMs,
}

impl Store {
    /// The mesh of that name: as it is, or as `new` describes it if there was none.
    pub async fn ensure_mesh(&self, new: NewMesh) -> Result<Mesh, StoreError> {
        self.write(move |connection| {
            insert(connection, &new)?;
            let mut statement = connection.prepare_cached(
                "SELECT name, mesh_id, member_id, member_name, broker_url, created_at
                 FROM mesh WHERE name = ?1",
            )?;
            let mut rows = statement.query([new.name.as_str()])?;
            match rows.next()? {
                Some(row) => read_mesh(row),
                None => Err(StoreError::Corrupt(format!(
                    "mesh {} is gone right after its insert",
                    new.name
                ))),
            }
        })
        .await
    }

    /// Gives our member of a mesh another name; its id and all that is its own stay.
    pub async fn rename_member(&self, mesh: MeshId, name: MemberName) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection
                .prepare_cached("UPDATE mesh SET member_name = ?2 WHERE mesh_id = ?1")?
                .execute(params![mesh.0.to_bytes(), name.as_str()])?;
            Ok(())
        })
        .await
    }

    /// In order of their names.
    pub async fn meshes(&self) -> Result<Vec<Mesh>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT name, mesh_id, member_id, member_name, broker_url, created_at
                 FROM mesh ORDER BY name",
            )?;
            let mut rows = statement.query([])?;
            let mut meshes = Vec::new();
            while let Some(row) = rows.next()? {
                meshes.push(read_mesh(row)?);
            }
            Ok(meshes)
        })
        .await
    }
}

fn insert(connection: &Connection, new: &NewMesh) -> Result<(), StoreError> {
    // Only the name may be taken: an id that comes back under another name is an error.
    connection
        .prepare_cached(
            "INSERT INTO mesh (mesh_id, name, member_id, member_name, broker_url, created_at, kind)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6,
                 CASE WHEN ?5 IS NULL THEN 'personal' ELSE 'shared_guest' END)
             ON CONFLICT (name) DO NOTHING",
        )?
        .execute(params![
            new.mesh.0.to_bytes(),
            new.name.as_str(),
            new.member.0.to_bytes(),
            new.member_name.as_str(),
            new.broker_url,
            new.now.0,
        ])?;
    Ok(())
}

fn read_mesh(row: &Row<'_>) -> Result<Mesh, StoreError> {
    let mut cells = Cells::of("mesh", row);
    Ok(Mesh {
        name: cells.parsed(MeshName::parse)?,
        mesh: MeshId(cells.ulid()?),
        member: MemberId(cells.ulid()?),
        member_name: cells.parsed(MemberName::parse)?,
        broker_url: cells.get()?,
        created_at: cells.wall()?,
    })
}
