//! Changes that wait for their broker, and that a disk changes meanwhile.

use heddle_core::names::MeshName;
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::{Blobs, RepairHints, check_up, repair};
use serde_json::json;

use crate::fixture::NOW;
use crate::mended::hints;
use crate::sync_home::{Home, op_of};

/// A disk changes the bytes of what waits.
fn change_waiting(home: &Home, from: &str, to: &str) {
    let change = "UPDATE outbox SET payload = CAST(replace(CAST(payload AS TEXT), ?1, ?2) AS BLOB)";
    home.unguarded(|raw| raw.execute(change, [from, to]).unwrap());
}

#[tokio::test]
async fn dr_06_a_change_whose_bytes_were_changed_while_it_waited_is_told_and_never_sent() {
    let home = Home::shared(9).await;
    home.set("one", json!(1)).await;
    home.set("two", json!(2)).await;
    let before = home.due().await;
    assert_eq!(before.len(), 2);
    change_waiting(&home, "one", "oxe");
    let due = home.due().await;
    assert_eq!(due, before[1..], "the others go on");
    let told = home.store.refused_ops(home.mesh, 9).await.unwrap();
    let id = before[0].client_message_id.to_string();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].0, id);
    assert!(told[0].2.contains("damaged"), "{told:?}");
    let uploads = home.store.upload_ops(home.mesh, 0, 100, 1 << 20).await;
    assert_eq!(uploads.unwrap(), before[1..]);
    let path = home.folder.path().join("data.db");
    let blobs = home.folder.path().join("blobs");
    let looked = check_up(&path, &blobs, |_, _| true, false).unwrap();
    assert!(looked.senseless.join("; ").contains(&id), "{looked:?}");
}

#[tokio::test]
async fn dr_06_a_repair_says_a_change_again_whose_bytes_were_changed_while_it_waited() {
    let mut home = Home::shared(10).await;
    home.set("one", json!(1)).await;
    home.set("two", json!(2)).await;
    let before = home.due().await;
    change_waiting(&home, "one", "oxe");
    home.store.stop();
    let path = home.folder.path().join("data.db");
    let blobs = Blobs::open(&home.folder.path().join("blobs")).unwrap();
    let hints = RepairHints {
        home: MeshName::parse("team").unwrap(),
        ..hints()
    };
    let mended = repair(&path, &blobs, &hints, NOW).unwrap();
    assert!(mended.is_some());
    assert_eq!(repair(&path, &blobs, &hints, NOW).unwrap(), None);
    home.store = crate::fixture::open(&path).unwrap();
    let due = home.due().await;
    assert_eq!(due.len(), 2);
    assert_eq!(due[0], before[1]);
    let said = op_of(&due[1]);
    let made = op_of(&before[0]);
    assert_eq!((said.stamp, said.body), (made.stamp, made.body));
    assert_eq!(home.get("one").await.as_deref(), Some("1"));
    let kept = home.status(before[0].client_message_id.as_str()).await.0;
    assert_eq!(kept, OutboxStatus::Aborted);
}
