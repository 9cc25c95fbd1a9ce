//! P17 and JN-37: a process that shows one entity of a store of 100,000 events, and one that does nothing at all.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::store::{Store, us};
use crate::error::{BenchError, Outcome};
use crate::process::installed;
use crate::product;
use crate::scratch::Scratch;
use crate::series::Series;

const SHOWS: usize = 20;
const COLD_READS: usize = 3;

#[derive(Default)]
pub(super) struct Figures {
    pub(super) trivial: Series,
    /// Of a store whose caches are level, which is the rule.
    pub(super) show: Series,
    pub(super) show_worst: Series,
    /// The caches are gone: all of the journal is read first.
    pub(super) cold: Series,
    /// The same with nothing of it in memory.
    pub(super) from_disk: Series,
}

/// A program of an empty `main`, compiled here.
pub(super) struct Trivial {
    program: PathBuf,
    is_own: bool,
}

impl Trivial {
    pub(super) fn new(scratch: &Scratch) -> Outcome<Self> {
        let (source, program) = (scratch.file("trivial.rs"), scratch.file("trivial"));
        std::fs::write(&source, "fn main() {}\n")?;
        let compiled = installed("rustc").is_some_and(|rustc| {
            let mut command = Command::new(rustc);
            command.args(["-C", "opt-level=3", "-o"]);
            command.arg(&program).arg(&source).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        });
        Ok(Self {
            program: if compiled {
                program
            } else {
                std::env::current_exe()?
            },
            is_own: !compiled,
        })
    }

    pub(super) fn remark(&self) -> Option<&'static str> {
        self.is_own.then_some(
            "P17: there is no rustc here for a trivial binary; this bench doing nothing stands in, which is larger",
        )
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if self.is_own {
            command.arg(crate::NOOP);
        }
        command
    }
}

impl Figures {
    pub(super) fn measure(
        &mut self,
        store: &Store,
        binary: &Path,
        trivial: &Trivial,
    ) -> Outcome<()> {
        let show = |n: usize| {
            let mut shown = product::command(binary, &store.folder.join("home"));
            shown.args(["journal", "show", "plan", &format!("pln_{}", n * 31)]);
            process(&mut shown, &store.folder)
        };
        // The pages of both programs are in memory from here on.
        process(&mut trivial.command(), &store.folder)?;
        show(0)?;
        let (mut nothing, mut shown) = (Series::default(), Series::default());
        for n in 0..SHOWS {
            nothing.push(process(&mut trivial.command(), &store.folder)?);
            shown.push(show(n)?);
        }
        self.trivial.push(nothing.median());
        self.show.push(shown.median());
        self.show_worst.push(shown.max());
        for (is_from_disk, series) in [(false, &mut self.cold), (true, &mut self.from_disk)] {
            let mut cold = Series::default();
            for n in 0..COLD_READS {
                forget_caches(store)?;
                if is_from_disk {
                    give_pages_back(store)?;
                }
                cold.push(show(n)?);
            }
            series.push(cold.median());
        }
        Ok(())
    }
}

fn forget_caches(store: &Store) -> Outcome<()> {
    let layout = store.journal.layout();
    for cache in [layout.meta(), layout.revisions()] {
        std::fs::remove_file(cache)?;
    }
    Ok(())
}

/// The kernel forgets the pages of the journal's files.
fn give_pages_back(store: &Store) -> Outcome<()> {
    let layout = store.journal.layout();
    for folder in [layout.events(), layout.checkpoints()] {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_file() {
                let file = std::fs::File::open(path)?;
                file.sync_all()?;
                // Advice: where the kernel does not take it, the read is faster than it would be.
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        }
    }
    Ok(())
}

/// From the start of a process to its end, in microseconds.
fn process(command: &mut Command, folder: &Path) -> Outcome<f64> {
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let took = us(start);
    if status.success() {
        Ok(took)
    } else {
        Err(BenchError::new(format!("a process failed: {status}")))
    }
}
