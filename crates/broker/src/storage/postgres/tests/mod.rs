//! What only PostgreSQL can show: several brokers on one database, servers that fail, tables that refuse.

mod damage;
mod many;
mod mend;
mod older;
mod opening;
mod plans;
mod sets;
mod swift;
mod waiting;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId};
use heddle_core::names::MemberName;
use ulid::Ulid;

use super::PostgresStorage;
use crate::storage::{Destination, NewMessage, PostgresOptions, SendId, Storage as _};
use crate::test_support::{member, mesh, mesh_name, party, topic};

/// A mesh with a member `a`, its agent `one`, and `#ops`, which it has subscribed to.
async fn furnish(storage: &PostgresStorage) {
    let (mesh, a) = (mesh(1), party("a/one"));
    storage.ensure_mesh(mesh, &mesh_name("home")).await.unwrap();
    let name = MemberName::parse("a").unwrap();
    storage
        .ensure_member(mesh, member("a"), &name)
        .await
        .unwrap();
    storage.register_agent(mesh, &a).await.unwrap();
    storage.subscribe(mesh, &topic("#ops"), &a).await.unwrap();
}

/// Two brokers on one database.
async fn two(options: &PostgresOptions) -> [PostgresStorage; 2] {
    let first = PostgresStorage::open(options).await.unwrap();
    furnish(&first).await;
    [first, PostgresStorage::open(options).await.unwrap()]
}

/// From `a/one` to `#ops`; `minted` is the broker's id.
fn message(id: &str, fingerprint: u8, minted: u128) -> NewMessage {
    let client_message_id = ClientMessageId::parse(id).unwrap();
    NewMessage {
        is_heard: false,
        id: SendId::new(mesh(1), party("a/one"), client_message_id),
        sender_name: MemberName::parse("a").unwrap(),
        broker_message_id: BrokerMessageId(Ulid::from(minted)),
        wire_fingerprint: Fingerprint([fingerprint; 32]),
        destination: Destination::Topic(topic("#ops")),
        priority: Priority::Next,
        mentions: vec![party("a/one")],
        envelope: "{}".into(),
        accepted_at: WallMs(1),
        expires_at: None,
        limiter: None,
        epoch: None,
        session: None,
    }
}
