//! Whose a row of the outbox is, compared with its key: that is a digest of mesh, member, agent and id, so that a cell which a
//! disk has changed does not fit it any more, and the one that it was can be found again and proven.

use std::collections::BTreeMap;

use heddle_core::ids::{ClientMessageId, IdKey, MemberId, MeshId, OpId, Party, RowId};
use heddle_core::names::AgentName;
use rusqlite::{Connection, Row};
use ulid::Ulid;

use crate::backup::has_table;

/// Bytes in which a damaged id or key differs from what it was.
const BYTES_MAX: usize = 2;
/// Senders that are tried for a row of which more than a bit was changed.
const SENDERS_MAX: usize = 1000;
/// The version of a UUID that a publish has derived, in the byte that says it.
const DERIVED: u8 = 5;

const ROWS: &str = "
    SELECT arrival, row_id, id_key, mesh_id, member_id, CAST(agent AS BLOB),
        CAST(client_message_id AS BLOB), kind = 'op'
    FROM outbox ORDER BY arrival LIMIT ?1";

/// Who sent something: a mesh, a member and the agent's name.
pub(crate) type Sender = ([u8; 16], [u8; 16], Vec<u8>);

/// What a row says of whose it is, as it stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) row: [u8; 16],
    pub(crate) key: [u8; 24],
    pub(crate) sender: Sender,
    pub(crate) id: Vec<u8>,
    pub(crate) is_op: bool,
}

/// A row that does not fit its key, and what it was where that can be proven.
pub(crate) struct Changed {
    pub(crate) arrival: i64,
    pub(crate) now: Identity,
    pub(crate) was: Option<Identity>,
}

impl Changed {
    /// The first cell that was changed; the key stands for all of them where nobody knows which.
    pub(crate) fn column(&self) -> &'static str {
        let Some(was) = &self.was else {
            return "id_key";
        };
        let ((mesh, member, agent), now) = (&was.sender, &self.now);
        let cells = [
            ("mesh_id", *mesh != now.sender.0),
            ("member_id", *member != now.sender.1),
            ("agent", *agent != now.sender.2),
            ("client_message_id", was.id != now.id),
            ("row_id", was.row != now.row),
        ];
        let changed = cells.iter().find(|(_, is_other)| *is_other);
        changed.map_or("id_key", |(column, _)| column)
    }
}

/// What a look found.
#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) changed: Vec<Changed>,
    /// Who sent how many of the rows that fit their keys.
    pub(crate) proven: BTreeMap<Sender, u64>,
}

/// Every row whose cells are not those that its key was made of, among the first `rows_max`.
pub(crate) fn look(connection: &Connection, rows_max: u64) -> rusqlite::Result<Looked> {
    let mut looked = Looked::default();
    if !has_table(connection, "outbox")? {
        return Ok(looked);
    }
    let mut statement = connection.prepare(ROWS)?;
    let mut rows = statement.query([i64::try_from(rows_max).unwrap_or(i64::MAX)])?;
    while let Some(row) = rows.next()? {
        // Cells of another shape are told of as such (`meaning.rs`).
        let Ok((arrival, now)) = read(row) else {
            continue;
        };
        if now.is_stand_in() {
            continue;
        }
        let mut was = None;
        if now.fits() {
            match looked.proven.get_mut(&now.sender) {
                Some(count) => *count += 1,
                None => drop(looked.proven.insert(now.sender.clone(), 1)),
            }
            let Some(row) = now.row_of_id() else { continue };
            was = Some(Identity { row, ..now.clone() });
        }
        looked.changed.push(Changed { arrival, now, was });
    }
    for one in looked.changed.iter_mut().filter(|one| one.was.is_none()) {
        one.was = one.now.solve(looked.proven.keys().take(SENDERS_MAX));
    }
    Ok(looked)
}

fn read(row: &Row<'_>) -> rusqlite::Result<(i64, Identity)> {
    let now = Identity {
        row: row.get(1)?,
        key: row.get(2)?,
        sender: (row.get(3)?, row.get(4)?, row.get(5)?),
        id: row.get(6)?,
        is_op: row.get(7)?,
    };
    Ok((row.get(0)?, now))
}

impl Identity {
    pub(crate) fn fits(&self) -> bool {
        key_of(&self.sender, &self.id) == Some(self.key)
    }

    /// One of which a repair could not tell what it was: its key still keeps the id that it took.
    fn is_stand_in(&self) -> bool {
        let is_row = self.id == RowId(Ulid::from_bytes(self.row)).0.to_string().into_bytes();
        (is_row || self.sender.2 == AgentName::unreadable().as_str().as_bytes()) && !self.fits()
    }

    /// What it was, where exactly that fits the key.
    pub(crate) fn solve<'s>(&self, known: impl Iterator<Item = &'s Sender>) -> Option<Self> {
        let with = |sender: Sender, id: Vec<u8>| Self {
            sender,
            id,
            ..self.clone()
        };
        let (mesh, member, agent) = &self.sender;
        let meshes = flips(mesh).map(|mesh| with((mesh, *member, agent.clone()), self.id.clone()));
        let members =
            flips(member).map(|member| with((*mesh, member, agent.clone()), self.id.clone()));
        let agents = flips_of(agent).map(|agent| with((*mesh, *member, agent), self.id.clone()));
        let ids = flips_of(&self.id).map(|id| with(self.sender.clone(), id));
        let of_row = OpId::from_bytes(self.row).to_string().into_bytes();
        let ids = ids.chain([with(self.sender.clone(), of_row)]);
        let known = known.map(|sender| with(sender.clone(), self.id.clone()));
        let mut all = meshes.chain(members).chain(agents).chain(ids).chain(known);
        if let Some(was) = all.find(Self::fits) {
            return Some(was);
        }
        let key = key_of(&self.sender, &self.id)?;
        is_near(&key, &self.key).then(|| Self {
            key,
            ..self.clone()
        })
    }

    /// The id of the row of an op whose own id is proven, where the row has another one: it is made of that (`outgoing.rs`).
    fn row_of_id(&self) -> Option<[u8; 16]> {
        let text = std::str::from_utf8(&self.id).ok()?;
        let id = text.parse::<OpId>().ok().filter(|_| self.is_op)?.to_bytes();
        let mut made = id;
        if id[6] >> 4 == DERIVED {
            // Its time is that of the op.
            made[..6].copy_from_slice(&self.row[..6]);
        }
        (made != self.row && is_near(&made, &self.row)).then_some(made)
    }
}

fn is_near(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).filter(|(one, other)| one != other);
    differing.count() <= BYTES_MAX
}

fn key_of((mesh, member, agent): &Sender, id: &[u8]) -> Option<[u8; 24]> {
    let agent = AgentName::parse(std::str::from_utf8(agent).ok()?).ok()?;
    let id = ClientMessageId::parse(std::str::from_utf8(id).ok()?).ok()?;
    let member = MemberId(Ulid::from_bytes(*member));
    let mesh = MeshId(Ulid::from_bytes(*mesh));
    Some(IdKey::of(mesh, &Party { member, agent }, &id).0)
}

/// With each of its bits the other way.
fn flips(bytes: &[u8; 16]) -> impl Iterator<Item = [u8; 16]> {
    let bytes = *bytes;
    (0..bytes.len() * 8).map(move |bit| {
        let mut other = bytes;
        other[bit / 8] ^= 1 << (bit % 8);
        other
    })
}

fn flips_of(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let bytes = bytes.to_vec();
    (0..bytes.len() * 8).map(move |bit| {
        let mut other = bytes.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        other
    })
}
