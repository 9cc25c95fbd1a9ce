//! The way an answer goes back to its caller, whether that waits in a task or in a plain thread.

use std::any::Any;
use std::sync::mpsc;

use tokio::sync::oneshot;

pub(crate) enum Reply<A> {
    Task(oneshot::Sender<A>),
    Thread(mpsc::SyncSender<A>),
}

impl<A> Reply<A> {
    pub(crate) fn to_task() -> (Reply<A>, oneshot::Receiver<A>) {
        let (sender, receiver) = oneshot::channel();
        (Reply::Task(sender), receiver)
    }

    pub(crate) fn to_thread() -> (Reply<A>, mpsc::Receiver<A>) {
        let (sender, receiver) = mpsc::sync_channel(1);
        (Reply::Thread(sender), receiver)
    }

    /// A caller that has gone away is no error: its work was done all the same.
    pub(crate) fn send(self, answer: A) {
        match self {
            Reply::Task(sender) => drop(sender.send(answer)),
            Reply::Thread(sender) => drop(sender.send(answer)),
        }
    }
}

/// The text of a caught panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
