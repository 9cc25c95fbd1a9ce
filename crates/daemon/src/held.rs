//! Files of the home that another program holds a lock on: nothing can be written there until it lets go.
//!
//! Asked of the files themselves whenever somebody wants to know, so that nobody is told of a lock that is gone.

use heddle_core::shell::quoted;

use crate::effects::Effects;
use crate::shared::Shared;
use crate::standing::Wrong;

/// What helps whoever was refused because of it.
pub(crate) const REFUSED_NEXT: &str = "`heddle doctor` says what to do about the lock; send it again with the same id when it is gone.";

/// One file, and what waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) file: &'static str,
    so: &'static str,
}

const DATA: Held = Held {
    file: "data.db",
    so: "every send and every change is refused, and nothing is received",
};
const BROKER: Held = Held {
    file: "broker.db",
    so: "what is sent in the meshes of this home's own broker waits",
};
const EFFECTS: Held = Held {
    file: "effects.db",
    so: "no effect can be decided",
};

/// All of them are asked at once: each takes as long as a write waits for a lock, where it is held.
pub(crate) async fn look(shared: &Shared, effects: &Effects) -> Vec<Held> {
    let broker = async {
        let own = shared.host.as_ref().and_then(|host| host.is_held());
        match own {
            Some(asked) => asked.await,
            None => false,
        }
    };
    let asked = tokio::join!(shared.store.is_held(), broker, effects.is_store_held());
    let found = [(DATA, asked.0), (BROKER, asked.1), (EFFECTS, asked.2)];
    let held = found.into_iter().filter(|(_, is_held)| *is_held);
    held.map(|(held, _)| held).collect()
}

impl Held {
    /// Without its store a daemon does none of its work; without the others it does some.
    pub(crate) fn stops_all(self) -> bool {
        self == DATA
    }

    /// Under a name of its own: what the doctor finds in the file itself is another thing.
    pub(crate) fn wrong(self, shared: &Shared) -> Wrong {
        let Self { file, so } = self;
        let says = format!(
            "another program holds a lock on {file}, and {so} until it lets go; `heddle doctor` says what to do"
        );
        Wrong::new(format!("lock of {file}"), says, next(shared, file))
    }
}

/// What helps. The other program is not ours: it is named by what the machine knows, and ended by whoever began it.
fn next(shared: &Shared, file: &str) -> String {
    let path = shared.home.join(file).display().to_string();
    format!(
        "`fuser -v {}` names the program, often a `sqlite3` that was left in a transaction: end what it does. Everything goes on by itself then.",
        quoted(&path)
    )
}
