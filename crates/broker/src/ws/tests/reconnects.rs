//! L-21: everybody comes back at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use heddle_wire::broker::ServerFrame;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::house::House;
use crate::storage::Storage as _;
use crate::test_support::{member, mesh, party, send_item};

/// Each of them hears of all the others: what goes over the pipes grows with the square, so that a debug build has
/// enough of it with these.
const HOMES: usize = 60;
/// Frames that tell of the roster, beside the welcome. Without bringing them together each home would hear of every other.
const ROSTERS_MAX: usize = 8;

/// All say hello in the same moment, each with a message that waits for it: everybody is let in, gets its message once,
/// and hears of the roster a few times, not once for each that came. The time stands still, so nothing here depends
/// on the machine.
#[tokio::test(start_paused = true)]
async fn l_21_everybody_reconnects_at_once_and_nobody_loses_its_place() {
    let house = Arc::new(House::new().await);
    let name = |n: usize| format!("m{n}");
    let (mut sender, _serving) = house.enter("sender", &["one"]).await;
    for n in 0..HOMES {
        let storage = &house.storage;
        let named = heddle_core::names::MemberName::parse(&name(n)).unwrap();
        storage
            .ensure_member(mesh(1), member(&name(n)), &named)
            .await
            .unwrap();
        let mailbox = party(&format!("{}/one", name(n)));
        storage.register_agent(mesh(1), &mailbox).await.unwrap();
        let to = format!("@{}/one", name(n));
        sender
            .send(n as u64, vec![send_item("one", &name(n), &to, "x")])
            .await;
        sender.verdicts().await;
    }
    let gate = Arc::new(Barrier::new(HOMES));
    let mut homes = JoinSet::new();
    for n in 0..HOMES {
        let (house, gate) = (Arc::clone(&house), Arc::clone(&gate));
        homes.spawn(async move {
            gate.wait().await;
            let (mut client, serving) = house.enter(&name(n), &["one"]).await;
            let mut rosters = 0;
            let delivered = loop {
                match client.frame().await {
                    ServerFrame::Deliver { items } => break items,
                    ServerFrame::Roster { .. } => rosters += 1,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(delivered.len(), 1);
            client.ack(&delivered).await;
            // Everybody stays until the last is here, and until nothing is said any more.
            gate.wait().await;
            let quiet = std::time::Duration::from_secs(5);
            while let Ok(frame) = tokio::time::timeout(quiet, client.frame()).await {
                match frame {
                    ServerFrame::Roster { .. } => rosters += 1,
                    other => panic!("a message came twice: {other:?}"),
                }
            }
            assert!(!serving.is_finished());
            (delivered[0].client_message_id.to_string(), rosters)
        });
    }
    let mut got = BTreeSet::new();
    while let Some(home) = homes.join_next().await {
        let (id, rosters) = home.unwrap();
        assert!(got.insert(id), "each has its own");
        assert!(rosters <= ROSTERS_MAX, "{rosters} rosters");
    }
    assert_eq!(got.len(), HOMES);
}
