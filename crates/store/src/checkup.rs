//! What is wrong with a store, looked at without changing a byte, whether a daemon runs or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;

use heddle_core::file::{ContentHash, ContentHasher};
use heddle_core::ids::{MemberId, MeshId};
use heddle_sqlite::{Condition, Look};
use rusqlite::Connection;
use ulid::Ulid;

use crate::backup::{BackupError, has_table, problem_of};
use crate::data::named_by_rows;
use crate::inbox::{IsReadable, damaged};
use crate::meshless::{Meshless, meshless};
use crate::own_refused;
use crate::park::{all_old, open_old};
use crate::senseless::senseless;
use crate::unclean::{Outlook, outlook};

/// What a look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkup {
    /// What the file is. Nothing below was looked at where it is not fit.
    pub outlook: Outlook,
    pub meshes: Vec<MeshCheck>,
    /// Messages that will not go out by themselves.
    pub dead: u64,
    /// What a prune would give back of messages that will not be sent any more.
    pub prunable_bytes: u64,
    /// Items of the inbox that nobody has acknowledged and whose bytes cannot be read.
    pub damaged: Vec<i64>,
    /// Rows that cannot be right, though every page is; one line for each kind.
    pub senseless: Vec<String>,
    /// Rows that stand under no mesh of this home.
    pub meshless: Vec<Meshless>,
    /// Blobs that rows name and that are here.
    pub blobs: u64,
    /// Of those, how many have no file of the right length.
    pub blobs_missing: u64,
    /// And how many have one with other bytes.
    pub blobs_damaged: u64,
    /// Blobs that rows name and that are to be fetched from others.
    pub blobs_wanted: u64,
    /// A path of each that is missing or damaged; not more than a few.
    pub blobs_bad: Vec<String>,
    /// Files in the blob folder that no row names; a sweep takes them away once they are old enough.
    pub blobs_orphaned: u64,
    /// Files that once were this store: parked, damaged, or from before a restore.
    pub old_files: Vec<std::path::PathBuf>,
}

/// How the sync of one mesh stands in the tables.
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts of a row that are true or not by themselves"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshCheck {
    pub name: String,
    /// By the broker of this home: no setting names such a mesh, its row is all there is.
    pub is_hosted_here: bool,
    pub is_shared: bool,
    pub paused: bool,
    pub needs_resync: bool,
    pub out_waiting: u64,
    /// Of them, those that the broker refused.
    pub out_refused: u64,
    pub parked: u64,
    pub quarantined: u64,
    /// Of them, those that this home made itself, with stamps that no home takes.
    pub own_refused: u64,
}

/// Files of damaged blobs that a look names.
const BAD_NAMED_MAX: usize = 10;
const READ_BYTES: usize = 256 << 10;
const PATH_OF: &str =
    "SELECT path FROM files WHERE sha256 = ?1 AND tombstone = 0 ORDER BY path LIMIT 1";

const NOTED_BLOBS: &str = "
    SELECT sha256, bytes, here FROM blob_refs WHERE ref_count > 0
        OR sha256 IN (SELECT sha256 FROM files WHERE storage = 'blob')";
const HAS_LENGTH: &str = "SELECT 1 FROM files WHERE sha256 = ?1 AND storage = 'blob' AND size = ?2";

const MESHES: &str = "
    SELECT name, kind <> 'personal', sync_paused, needs_resync,
        (SELECT count(*) FROM op_outbox WHERE op_outbox.mesh_id = mesh.mesh_id),
        (SELECT count(*) FROM op_inbox WHERE op_inbox.mesh_id = mesh.mesh_id AND state = 'parked'),
        (SELECT count(*) FROM op_inbox
            WHERE op_inbox.mesh_id = mesh.mesh_id AND state = 'quarantined'),
        (SELECT count(*) FROM op_outbox JOIN outbox ON outbox.arrival = op_outbox.arrival
            WHERE op_outbox.mesh_id = mesh.mesh_id AND outbox.attempts > 0),
        broker_url IS NULL, mesh_id, member_id
    FROM mesh ORDER BY name";

// The length of a blob stands in the head of its row: its pages are not read.
const PRUNABLE: &str = "
    SELECT ifnull(sum(length(payload)), 0) FROM outbox
    WHERE status = 'done' OR status = 'dead' OR status = 'aborted'";

/// Looks at the whole store. `alone`: nobody in this process has it open. Blocks for as long as reading all of it
/// takes.
pub fn check_up(
    data: &Path,
    blobs: &Path,
    is_readable: IsReadable,
    alone: bool,
) -> Result<Checkup, BackupError> {
    let data = std::path::absolute(data).map_err(BackupError::io("named", data))?;
    let mut found = Checkup {
        outlook: outlook(&data, Look::Wholly, alone),
        meshes: Vec::new(),
        dead: 0,
        prunable_bytes: 0,
        damaged: Vec::new(),
        senseless: Vec::new(),
        meshless: Vec::new(),
        blobs: 0,
        blobs_missing: 0,
        blobs_damaged: 0,
        blobs_wanted: 0,
        blobs_bad: Vec::new(),
        blobs_orphaned: 0,
        old_files: all_old(&data),
    };
    if found.outlook.condition != Condition::Fit {
        return Ok(found);
    }
    heddle_sqlite::link_vectors()?;
    let connection = open_old(&data)?;
    found.senseless = senseless(&connection)?;
    found.meshless = meshless(&connection)?;
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let number = |sql: &str| count(sql).map(|count| u64::try_from(count).unwrap_or(0));
    if has_table(&connection, "outbox")? {
        found.dead = number("SELECT count(*) FROM outbox WHERE status = 'dead'")?;
        found.prunable_bytes = number(PRUNABLE)?;
    }
    if has_table(&connection, "inbox")? {
        found.damaged = damaged(&connection, is_readable)?;
    }
    if has_table(&connection, "op_inbox")? {
        found.meshes = meshes(&connection)?;
    }
    if has_table(&connection, "blob_refs")? {
        look_at_blobs(&connection, blobs, &mut found)?;
    }
    Ok(found)
}

/// The first problem of any SQLite file, such as the broker's; reads only.
pub fn problem_in(path: &Path) -> Result<Option<String>, BackupError> {
    let path = std::path::absolute(path).map_err(BackupError::io("named", path))?;
    problem_of(&open_old(&path)?)
}

fn meshes(connection: &Connection) -> rusqlite::Result<Vec<MeshCheck>> {
    let mut statement = connection.prepare(MESHES)?;
    let rows = statement.query_map([], |row| {
        let mesh = MeshId(Ulid::from_bytes(row.get(9)?));
        let own = MemberId(Ulid::from_bytes(row.get(10)?));
        Ok(MeshCheck {
            name: String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned(),
            is_shared: row.get(1)?,
            paused: row.get(2)?,
            needs_resync: row.get(3)?,
            out_waiting: u64::from(row.get::<_, u32>(4)?),
            parked: u64::from(row.get::<_, u32>(5)?),
            quarantined: u64::from(row.get::<_, u32>(6)?),
            out_refused: u64::from(row.get::<_, u32>(7)?),
            is_hosted_here: row.get(8)?,
            own_refused: own_refused::places(connection, mesh, own)?.len() as u64,
        })
    })?;
    rows.collect()
}

fn look_at_blobs(
    connection: &Connection,
    blobs: &Path,
    found: &mut Checkup,
) -> Result<(), BackupError> {
    // The files first: a blob that is shared meanwhile is in the rows by then.
    let files = files(blobs);
    // Whatever was counted: what a live row names is somebody's.
    let by_rows: BTreeSet<[u8; 32]> = named_by_rows(connection)?.into_iter().collect();
    let mut named = by_rows.clone();
    let mut statement = connection.prepare(NOTED_BLOBS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (hash, bytes, here): ([u8; 32], i64, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
        named.insert(hash);
        // Counted, and no row names it: what it was is told among the rows.
        if !by_rows.contains(&hash) {
            continue;
        }
        found.blobs_wanted += u64::from(!here);
        let length = files.get(&hash).and_then(|len| i64::try_from(*len).ok());
        let is_named_so = match length {
            Some(length) if !here || length != bytes => is_length_of(connection, hash, length)?,
            _ => false,
        };
        let has = length == Some(bytes) || is_named_so;
        let is_whole = has && (here || is_named_so) && is_whole(blobs, ContentHash(hash));
        if is_named_so && is_whole {
            let says = format!(
                "blob_refs: the bytes of blob {} are here, and are noted as elsewhere or of another length",
                ContentHash(hash)
            );
            found.senseless.push(says);
        }
        if here {
            found.blobs += 1;
            found.blobs_missing += u64::from(!has);
            found.blobs_damaged += u64::from(has && !is_whole);
            if !is_whole && found.blobs_bad.len() < BAD_NAMED_MAX {
                let path = connection.query_row(PATH_OF, [hash], |row| row.get(0));
                found.blobs_bad.extend(path.ok());
            }
        }
    }
    let orphans = files.keys().filter(|hash| !named.contains(*hash));
    found.blobs_orphaned = orphans.count() as u64;
    Ok(())
}

/// Whether a live file says that this is its length.
fn is_length_of(connection: &Connection, hash: [u8; 32], length: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(HAS_LENGTH)?;
    statement.exists((hash, length))
}

/// Reads all of it: a flipped bit has the right length as well.
fn is_whole(blobs: &Path, hash: ContentHash) -> bool {
    let name = hash.to_string();
    let Ok(mut file) = heddle_sqlite::open_plain(&blobs.join(&name[..2]).join(&name)) else {
        return false;
    };
    let mut hasher = ContentHasher::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return hasher.finish() == hash,
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// The blobs that lie in their folders, with their lengths.
fn files(blobs: &Path) -> BTreeMap<[u8; 32], u64> {
    let mut found = BTreeMap::new();
    for folder in 0..=u8::MAX {
        let Ok(entries) = fs::read_dir(blobs.join(format!("{folder:02x}"))) else {
            continue;
        };
        for entry in entries.flatten() {
            let hash = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let (Some(ContentHash(hash)), Ok(meta)) = (hash, entry.metadata()) {
                found.insert(hash, meta.len());
            }
        }
    }
    found
}
