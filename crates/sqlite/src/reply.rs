//! The way an answer goes back to its caller, whether that waits in a task or in a plain thread.

use std::any::Any;
use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::sync::oneshot;
use tokio::task::unconstrained;

pub(crate) struct Reply<A>(oneshot::Sender<A>);

impl<A> Reply<A> {
    pub(crate) fn new() -> (Reply<A>, oneshot::Receiver<A>) {
        let (sender, receiver) = oneshot::channel();
        (Reply(sender), receiver)
    }

    /// A caller that has gone away is no error: its work was done all the same.
    pub(crate) fn send(self, answer: A) {
        drop(self.0.send(answer));
    }
}

/// Waits where the caller stands, inside a runtime too: the thread sleeps until it is answered. One kind of
/// channel serves both waits, because every type of answer pays for each kind in code.
pub(crate) fn wait<A>(answer: oneshot::Receiver<A>) -> Result<A, oneshot::error::RecvError> {
    // A task that has used up its turn would be told to come back for ever.
    let mut answer = pin!(unconstrained(answer));
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

/// A thread that waits for its answer.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
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
