//! Parts of files between two brokers of one store: the question goes as a hint, the bytes through the store, and that
//! they lie there as a hint again. Each of them may be lost; the home that wants the part asks again.

use heddle_core::ids::{MemberId, MeshId};
use heddle_wire::broker::BlobPlace;

use super::Shared;
use super::blobs::{Errand, Found};
use crate::storage::{Hint, PartAsk, PartOutcome, PartPlace, Storage, StorageError};

impl<S: Storage, L> Shared<S, L> {
    /// Where a member that may have bytes is connected. Its lease tells whether it is at another broker.
    pub(super) async fn find_holder(&self, mesh: MeshId, member: MemberId) -> Found {
        if let Some(session) = self.hub.newest(mesh, member) {
            return Found::Here(session);
        }
        if !self.storage().is_shared() {
            return Found::Nowhere;
        }
        let present = self.storage().presence(mesh, self.lease.now()).await;
        let is_there = present.is_ok_and(|all| {
            let mut found = all.iter().filter(|one| one.member == member);
            found.any(|one| one.is_online)
        });
        if is_there {
            Found::Elsewhere
        } else {
            Found::Nowhere
        }
    }

    pub(super) fn ask_elsewhere(&self, ask: PartAsk, holder: MemberId, part: BlobPlace) {
        let BlobPlace {
            sha256,
            offset,
            length,
        } = part;
        let part = PartPlace {
            sha256,
            offset,
            length,
        };
        self.storage().tell(Hint::PartAsked { ask, holder, part });
    }

    /// Another broker asks for a member's bytes. Most of the time that member is not here.
    pub(super) fn asked_elsewhere(&self, ask: PartAsk, holder: MemberId, part: PartPlace) {
        let Some(holder) = self.hub.newest(ask.mesh, holder) else {
            return;
        };
        let PartPlace {
            sha256,
            offset,
            length,
        } = part;
        let part = BlobPlace {
            sha256,
            offset,
            length,
        };
        let now = self.accept.clock.mono();
        let refused = self.relays.ask_for_other(ask, &holder, part, now);
        self.tell_refused(refused);
    }

    /// Says no to other brokers, which takes no time.
    pub(super) fn tell_refused(&self, errands: impl IntoIterator<Item = Errand>) {
        for Errand { ask, result } in errands {
            let outcome = result.err().unwrap_or(PartOutcome::Absent);
            self.storage().tell(Hint::PartGiven { ask, outcome });
        }
    }

    /// Leaves the bytes for the broker that asked, then says so.
    pub(super) async fn run_errand(&self, Errand { ask, result }: Errand) {
        let outcome = match result {
            Err(outcome) => outcome,
            Ok(data) => match self.storage().leave_part(ask, data).await {
                Ok(()) => PartOutcome::Left,
                Err(error) => {
                    tracing::warn!(%error, "a part of a file was not left for another broker");
                    PartOutcome::Absent
                }
            },
        };
        self.storage().tell(Hint::PartGiven { ask, outcome });
    }

    /// Another broker has what we asked for, or says that there is nothing.
    pub(super) async fn fetch(&self, ask: PartAsk, outcome: PartOutcome) {
        if !self.relays.awaits(&ask) {
            return;
        }
        let result = match outcome {
            PartOutcome::Left => Ok(self.taken(ask).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "a part of a file was not fetched from another broker");
                None
            })),
            other => Err(other),
        };
        self.relays.given(&ask, result);
    }

    async fn taken(&self, ask: PartAsk) -> Result<Option<Vec<u8>>, StorageError> {
        self.storage().take_part(ask).await
    }
}
