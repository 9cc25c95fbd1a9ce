//! Trying to connect, as those see it who wait for it: a try ends in a connection or without one.

use super::MeshState;

impl MeshState {
    /// There is no connection, and why; another try comes later.
    pub(crate) fn not_connected_because(&self, why: String) {
        self.set_error(why);
        self.tried.notify_waiters();
    }

    /// Until the first try has ended. To be asked before it begins.
    pub(crate) fn first_try(&self) -> impl Future<Output = ()> + '_ {
        let mut failed = Box::pin(self.tried.notified());
        failed.as_mut().enable();
        async move {
            tokio::select! {
                () = self.wait_connected() => {}
                () = failed => {}
            }
        }
    }
}
