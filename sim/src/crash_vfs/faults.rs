//! Which call fails next: the schedule of faults of one disk.

use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Once,
    Forever,
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    power_off_at: Option<usize>,
    sync: Option<(usize, Times)>,
    write: Option<(usize, Times)>,
    pub(crate) space_bytes: Option<usize>,
}

impl Faults {
    pub(crate) fn cut_power_at(&mut self, index: usize) {
        self.power_off_at = Some(index);
    }

    pub(crate) fn fail_sync_at(&mut self, index: usize, times: Times) {
        self.sync = Some((index, times));
    }

    pub(crate) fn fail_write_at(&mut self, index: usize, times: Times) {
        self.write = Some((index, times));
    }

    /// Without power nothing works, reading included.
    pub(crate) fn power(&self, index: usize) -> VfsResult<()> {
        match self.power_off_at {
            Some(at) if index >= at => Err(vars::SQLITE_IOERR),
            _ => Ok(()),
        }
    }

    /// Whether the sync that would get `index` fails.
    pub(crate) fn sync_fails(&mut self, index: usize) -> bool {
        strikes(&mut self.sync, index)
    }

    /// Whether the write that would get `index` fails.
    pub(crate) fn write_fails(&mut self, index: usize) -> bool {
        strikes(&mut self.write, index)
    }
}

fn strikes(fault: &mut Option<(usize, Times)>, index: usize) -> bool {
    match *fault {
        Some((at, times)) if index >= at => {
            if times == Times::Once {
                *fault = None;
            }
            true
        }
        _ => false,
    }
}
