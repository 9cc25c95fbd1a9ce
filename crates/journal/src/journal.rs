//! A journal that is open: where it lies, who writes, what it may use. Holds no lock and no file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock, Ids};
use serde::{Deserialize, Serialize};

use crate::action::Mode;
use crate::disk::{Disk, read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::{ROOM_BYTES_MAX, ROOM_FROM_BYTES, SEGMENT_ROLL_BYTES, WHO_BYTES_MAX};
use crate::layout::Layout;
use crate::redact::Ended;
use crate::registry::Registry;
use crate::{checkpoint, meta, segments};

const CONFIG: &str = "journal.json";
const CONFIG_BYTES_MAX: u64 = 64 << 10;
const SCHEMA_BYTES_MAX: u64 = 256 << 10;
const CONFIG_VERSION: u8 = 1;
/// Projections and checkpoints belong into git, segments and caches do not (J2).
const GITIGNORE: &[u8] = b"/events/*\n!/events/checkpoints/\n/backups/\n";

/// What the journal uses of the world.
#[derive(Clone)]
pub struct World {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
}

/// On whose behalf records are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    pub agent: String,
    /// The actor instance; its own events are not shown back to it (JN-23).
    pub agent_id: Option<String>,
    pub user: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub roll_bytes: u64,
    /// Off only by the documented opt-out: a power cut may then lose what was acknowledged.
    pub sync: bool,
    pub lock_wait: Duration,
    /// Records of a slice that are taken in under one lock.
    pub chunk_records: usize,
    /// A larger state is written anew only when as much was recorded since: checkpoints cost in proportion to what is
    /// written, never with its square.
    pub every_roll_bytes: u64,
    /// A segment from this size on gets blank room ahead: a sync into it has no new length to write down.
    pub room_from_bytes: u64,
    pub room_bytes_max: u64,
    /// Up to so many entities, files are compared before the answer of whoever finds them doubtful; above, behind it.
    pub files_first_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            roll_bytes: SEGMENT_ROLL_BYTES,
            sync: true,
            lock_wait: Duration::from_secs(10),
            chunk_records: 100,
            every_roll_bytes: 32 << 20,
            room_from_bytes: ROOM_FROM_BYTES,
            room_bytes_max: ROOM_BYTES_MAX,
            files_first_max: 500,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Config {
    v: u8,
    mode: Mode,
}

type Ear = Box<dyn Fn(&Ended) + Send + Sync>;

pub struct Journal {
    pub(crate) world: World,
    pub(crate) layout: Layout,
    pub(crate) settings: Settings,
    pub(crate) registry: Arc<Registry>,
    pub(crate) mode: Mode,
    pub(crate) who: Who,
    /// Pid and a nonce of this start: never an agent's name, never a bare pid.
    pub(crate) writer: String,
    /// One request of this writer waits at a time: its records are known by the writer's name.
    pub(crate) line: std::sync::Mutex<()>,
    /// What a reader moved aside: told by the door, which alone speaks to people.
    pub(crate) aside: std::sync::Mutex<Vec<String>>,
    /// Told of a redaction that was interrupted and ended here: by the door, as above.
    ended: Option<Ear>,
    /// Every witness was asked, and none knew of a loss: from then on those that cost nothing are.
    looked: std::sync::atomic::AtomicBool,
    /// Looked up once: a folder does not move to another file system while it is open.
    network: std::sync::OnceLock<bool>,
}

impl Journal {
    /// Makes the store; one that is there stays as it is. The config comes last: it says that all is there. Where that alone is
    /// gone, the mode is the one that the cache knows.
    pub fn init(world: World, root: &Path, who: Who) -> Result<Self, JournalError> {
        let cache = meta::read(&*world.disk, &Layout::new(root))?;
        let mode = cache.good().map_or(Mode::Primary, |meta| meta.mode);
        Self::init_as(world, root, who, mode)
    }

    /// Whether this folder is a journal's: it says so, or records are in it.
    pub fn is_at(disk: &dyn Disk, root: &Path) -> Result<bool, JournalError> {
        let layout = Layout::new(root);
        let config = layout.root().join(CONFIG);
        Ok(disk.len(&config).at(&config)?.is_some() || has_records(disk, &layout)?)
    }

    /// The config alone is gone. IMPORTANT: nothing is begun anew over the records of somebody.
    pub(crate) fn check_config(disk: &dyn Disk, root: &Path) -> Result<(), JournalError> {
        match config(disk, &Layout::new(root)) {
            Err(error @ JournalError::ConfigGone(_)) => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn init_as(
        world: World,
        root: &Path,
        who: Who,
        mode: Mode,
    ) -> Result<Self, JournalError> {
        let layout = Layout::new(root);
        let disk = &*world.disk;
        let config = layout.root().join(CONFIG);
        if read_if_there(disk, &config, CONFIG_BYTES_MAX)
            .at(&config)?
            .is_none()
        {
            let folders = [layout.events(), layout.checkpoints(), layout.entities()];
            for folder in &folders {
                disk.create_dir(folder).at(folder)?;
            }
            let ignore = layout.root().join(".gitignore");
            replace(disk, &ignore, GITIGNORE, false).at(&ignore)?;
            crate::reserve::begin_list(disk, &layout)?;
            for folder in folders
                .iter()
                .map(std::path::PathBuf::as_path)
                .chain([root])
            {
                disk.sync_dir(folder).at(folder)?;
            }
            if let Some(parent) = root
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
            {
                disk.sync_dir(parent).at(parent)?;
            }
            put_config(disk, &layout, mode)?;
        }
        Self::open(world, root, who)
    }

    pub fn open(world: World, root: &Path, who: Who) -> Result<Self, JournalError> {
        let layout = Layout::new(root);
        let config = config(&*world.disk, &layout)?;
        let named = [Some(&who.agent), who.agent_id.as_ref(), who.user.as_ref()];
        if named
            .iter()
            .flatten()
            .any(|name| name.len() > WHO_BYTES_MAX)
        {
            return Err(JournalError::Refused(format!(
                "an agent, reader or user has at most {WHO_BYTES_MAX} bytes"
            )));
        }
        for folder in [root, &layout.events(), &layout.entities()] {
            match world.disk.check_dir(folder) {
                // Git keeps no empty folders: a clone may lack them.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                checked => checked.at(folder)?,
            }
        }
        let mut nonce = [0; 6];
        world.ids.fill(&mut nonce);
        let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        let registry = registry(&*world.disk, &layout)?;
        let mut journal = Self {
            writer: format!("w_{}-{nonce}", std::process::id()),
            world,
            layout,
            settings: Settings::default(),
            registry,
            mode: config.mode,
            who,
            line: std::sync::Mutex::new(()),
            aside: std::sync::Mutex::default(),
            ended: None,
            looked: std::sync::atomic::AtomicBool::new(false),
            network: std::sync::OnceLock::new(),
        };
        if journal.is_parking()? {
            // IMPORTANT: before anybody looks. Half a journal is none.
            journal.wait_and_end_parking()?;
            journal.mode = journal.mode_now()?;
        }
        Ok(journal)
    }

    /// On whose behalf records are written.
    pub fn agent(&self) -> &str {
        &self.who.agent
    }

    /// From now on, for whoever opens the store next. Under the lock only.
    pub(crate) fn put_mode(&self, mode: Mode) -> Result<(), JournalError> {
        put_config(self.disk(), &self.layout, mode)
    }

    pub(crate) fn mode_now(&self) -> Result<Mode, JournalError> {
        config(self.disk(), &self.layout).map(|config| config.mode)
    }

    /// Under the lock: somebody may have changed the mode since this process opened the store.
    pub(crate) fn check_mode(&self) -> Result<(), JournalError> {
        let now = self.mode_now()?;
        if now == self.mode {
            return Ok(());
        }
        Err(JournalError::ModeChanged {
            before: self.mode.as_str().to_owned(),
            now: now.as_str().to_owned(),
        })
    }

    #[must_use]
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = Arc::new(registry);
        self
    }

    /// Who hears of a redaction that a crash interrupted and that a call of this journal has ended, whatever that call was for.
    #[must_use]
    pub fn with_ear(mut self, ear: impl Fn(&Ended) + Send + Sync + 'static) -> Self {
        self.ended = Some(Box::new(ear));
        self
    }

    pub(crate) fn tell_ended(&self, ended: &Ended) {
        if let Some(ear) = &self.ended {
            ear(ended);
        }
    }

    pub fn writer(&self) -> &str {
        &self.writer
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whoever turns a journal off parks its records. Where they are here, and the cache does not know of it, it was turned off elsewhere:
    /// fails, for what is reserved in it holds.
    pub fn check_off(&self) -> Result<(), JournalError> {
        if self.mode != Mode::Off || segments::live(self.disk(), &self.layout)?.is_empty() {
            return Ok(());
        }
        let cache = meta::read(self.disk(), &self.layout)?;
        if cache.good().is_some_and(|meta| meta.mode == Mode::Off) {
            return Ok(());
        }
        Err(JournalError::OffOverRecords(
            self.layout.root().join(CONFIG),
        ))
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.world.disk
    }

    pub(crate) fn is_looked_at(&self) -> bool {
        self.looked.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn was_looked_at(&self) {
        self.looked
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn is_on_network(&self) -> bool {
        let root = self.layout.root();
        let look = || self.disk().network_name(root).is_some();
        *self.network.get_or_init(look)
    }

    pub(crate) fn boot(&self) -> Option<String> {
        self.world
            .clock
            .boot()
            .map(|boot| format!("{:032x}", boot.boot))
    }
}

fn config(disk: &dyn Disk, layout: &Layout) -> Result<Config, JournalError> {
    let path = layout.root().join(CONFIG);
    let bytes = read_if_there(disk, &path, CONFIG_BYTES_MAX).at(&path)?;
    let Some(bytes) = bytes else {
        return Err(if has_records(disk, layout)? {
            JournalError::ConfigGone(path)
        } else {
            JournalError::NoStore(layout.root().to_owned())
        });
    };
    let config: Config = serde_json::from_slice(&bytes).map_err(|e| JournalError::Config {
        path: path.clone(),
        reason: e.to_string(),
    })?;
    if config.v != CONFIG_VERSION {
        return Err(JournalError::Damaged {
            path,
            reason: format!(
                "version {} is unknown; a newer heddle may have written it",
                config.v
            ),
        });
    }
    Ok(config)
}

/// Whatever a journal leaves behind with its first record, or a clone brings.
fn has_records(disk: &dyn Disk, layout: &Layout) -> Result<bool, JournalError> {
    let meta = layout.meta();
    Ok(!segments::live(disk, layout)?.is_empty()
        || !segments::archived(disk, layout)?.is_empty()
        || !checkpoint::listed(disk, layout)?.is_empty()
        || disk.len(&meta).at(&meta)?.is_some())
}

fn put_config(disk: &dyn Disk, layout: &Layout, mode: Mode) -> Result<(), JournalError> {
    let path = layout.root().join(CONFIG);
    let fresh = Config {
        v: CONFIG_VERSION,
        mode,
    };
    let bytes = serde_json::to_vec(&fresh).map_err(JournalError::refused)?;
    replace(disk, &path, &bytes, true).at(&path)
}

/// The types of Heddle's own and those of `.heddle/schemas/`.
pub(crate) fn registry(disk: &dyn Disk, layout: &Layout) -> Result<Arc<Registry>, JournalError> {
    let mut registry = Registry::shared()?;
    let folder = layout.schemas();
    for entry in disk.list(&folder).at(&folder)? {
        if let Some(name) = entry.name.strip_suffix(".json").filter(|_| !entry.is_dir) {
            let path = folder.join(&entry.name);
            let registry = Arc::make_mut(&mut registry);
            let read = disk.read(&path, SCHEMA_BYTES_MAX);
            let added = read
                .map_err(|error| error.to_string())
                .and_then(|schema| registry.add(name, &schema).map_err(|e| e.to_string()));
            if let Err(reason) = added {
                registry.mark_broken(name, reason);
            }
        }
    }
    Ok(registry)
}
