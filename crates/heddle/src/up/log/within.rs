//! A thread that is within the log: what it says meanwhile, about the log's own file say, waits until it is out.

use std::cell::RefCell;

use super::line::Line;

/// More than this is not kept: the log has little to say about itself.
const LINES_MAX: usize = 16;

thread_local! {
    static SAID: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
}

/// Until it is dropped, this thread is within the log.
pub(super) struct Within(());

impl Within {
    pub(super) fn enter() -> Self {
        SAID.set(Some(Vec::new()));
        Self(())
    }

    pub(super) fn is_here() -> bool {
        SAID.with_borrow(Option::is_some)
    }

    pub(super) fn say(line: Line) {
        SAID.with_borrow_mut(|said| {
            if let Some(lines) = said.as_mut().filter(|lines| lines.len() < LINES_MAX) {
                lines.push(line);
            }
        });
    }

    /// What was said so far. What is said while that is written is not heard: it could go on for ever.
    pub(super) fn said() -> Vec<Line> {
        SAID.replace(Some(Vec::new())).unwrap_or_default()
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        SAID.set(None);
    }
}
