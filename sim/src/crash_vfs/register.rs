//! VFS names. SQLite keeps a VFS for the life of the process, so names are lent to disks and reused.

use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlite_plugin::vfs::{RegisterOpts, register_static};

use super::files::Disk;
use super::vfs::CrashVfs;

/// The disk that a name stands for at the moment.
pub(crate) type Slot = Arc<Mutex<Option<Arc<Disk>>>>;

static REGISTERED: Mutex<Names> = Mutex::new(Names {
    idle: Vec::new(),
    count: 0,
});

struct Names {
    idle: Vec<(String, Slot)>,
    count: usize,
}

/// A name on loan.
pub(crate) struct Registration {
    name: String,
    slot: Slot,
}

impl Registration {
    pub(crate) fn of(disk: Arc<Disk>) -> Registration {
        let mut names = lock(&REGISTERED);
        let (name, slot) = names.idle.pop().unwrap_or_else(|| {
            names.count += 1;
            fresh(names.count)
        });
        *lock(&slot) = Some(disk);
        Registration { name, slot }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn fresh(number: usize) -> (String, Slot) {
    let name = format!("heddle-crash-{number}");
    let slot = Slot::default();
    // A failure shows as "no such vfs" at the first use of the name.
    if let Ok(c_name) = CString::new(name.clone()) {
        let vfs = CrashVfs::new(Arc::clone(&slot));
        let _ = register_static(
            c_name,
            vfs,
            RegisterOpts {
                make_default: false,
            },
        );
    }
    (name, slot)
}

impl Drop for Registration {
    fn drop(&mut self) {
        let disk = lock(&self.slot).take();
        // Somebody else who knows the disk is an open file, and its owner may open further ones by this
        // name. Such a name is retired.
        if disk.is_some_and(|disk| Arc::strong_count(&disk) == 1) {
            let returned = (std::mem::take(&mut self.name), Arc::clone(&self.slot));
            lock(&REGISTERED).idle.push(returned);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
