//! The sweep: what it takes, what it leaves, and what happens when shares and deletes race it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use heddle_core::clock::WallMs;
use heddle_core::file::{ContentHash, FileContent};
use heddle_core::ids::Party;
use heddle_core::lamport::PeerId;
use heddle_core::limits::{SWEEP_GRACE, TOMBSTONE_LIFE};
use heddle_store::{Applied, Blobs, FileFind, Merged, NewContent, NewFile, Store, Swept, Taken};

use crate::blobs::{bytes_of, files, landed, place};
use crate::data::fresh;
use crate::files::{op, path, stamp};
use crate::fixture::{Fixture, NOW};
use crate::meshes::new_mesh;

async fn sweep(store: &Store, blobs: &Blobs, now: WallMs, grace: Duration) -> Swept {
    let swept = store.sweep_files(blobs, now, grace, &|| false);
    swept.await.unwrap()
}

fn age(file: &Path, now: WallMs, age: Duration) {
    let now = UNIX_EPOCH + Duration::from_millis(now.0.unsigned_abs());
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_modified(now - age).unwrap();
}

#[tokio::test]
async fn c10_lf_28_blobs_that_nobody_names_go_when_they_are_old_and_all_others_stay() {
    let fixture = Fixture::new();
    let (blobs, root) = (fixture.blobs(), fixture.folder.path().join("blobs"));
    let named = fixture.share_blob(&blobs, "a", "f", 0).await;
    let hash = |seed| ContentHash::of(&bytes_of(seed));
    // Shares that died between the rename and their transaction.
    for seed in [1, 2, 3, 4] {
        drop(landed(&blobs, &bytes_of(seed)));
    }
    let minute = Duration::from_secs(60);
    age(&place(&root, hash(0)), NOW, 10 * SWEEP_GRACE);
    age(&place(&root, hash(1)), NOW, SWEEP_GRACE + minute);
    age(
        &place(&root, hash(2)),
        NOW,
        SWEEP_GRACE.saturating_sub(minute),
    );
    // Of a clock that was wrong.
    age(
        &place(&root, hash(3)),
        WallMs(NOW.0 + 365 * 86_400_000),
        Duration::ZERO,
    );
    age(&place(&root, hash(4)), NOW, SWEEP_GRACE + minute);
    std::fs::write(root.join("note"), "of a person").unwrap();
    std::fs::write(place(&root, hash(0)).with_file_name("note"), "of a person").unwrap();
    let held = blobs.hold(hash(4));
    let swept = sweep(&fixture.store, &blobs, NOW, SWEEP_GRACE).await;
    assert_eq!(
        (swept.blobs, swept.young, swept.failed),
        (2, 1, 0),
        "{swept:?}"
    );
    assert_eq!(swept.bytes, 2 * bytes_of(0).len() as u64);
    let left: BTreeSet<_> = files(&root).into_iter().collect();
    let expected = [
        place(&root, hash(0)),
        place(&root, hash(2)),
        place(&root, hash(4)),
        root.join("note"),
        place(&root, hash(0)).with_file_name("note"),
    ];
    assert_eq!(left, expected.into_iter().collect());
    drop(held);
    assert_eq!(
        sweep(&fixture.store, &blobs, NOW, Duration::ZERO)
            .await
            .blobs,
        2
    );
    let row = fixture.file("f").await.unwrap();
    assert_eq!(row.id(), named.stamp.op);
    assert!(blobs.read(row.hash, row.size).is_ok());
}

#[tokio::test]
async fn what_a_delete_or_a_crash_in_a_sweep_left_is_finished_by_the_next() {
    let fixture = Fixture::new();
    let (blobs, root) = (fixture.blobs(), fixture.folder.path().join("blobs"));
    for (id, seed) in [("a", 0), ("b", 1), ("c", 2)] {
        fixture.share_blob(&blobs, id, id, seed).await;
        fresh(fixture.unshare(&format!("{id}-"), id).await);
    }
    // Died after the commit of `here = 0`; died after the unlink.
    let hash = |seed| ContentHash::of(&bytes_of(seed));
    let raw = fixture.raw();
    for seed in [1, 2] {
        raw.execute(
            "UPDATE blob_refs SET here = 0 WHERE sha256 = ?1",
            [hash(seed).0],
        )
        .unwrap();
    }
    std::fs::remove_file(place(&root, hash(2))).unwrap();
    let swept = fixture.store.sweep_deleted(&blobs).await.unwrap();
    assert_eq!((swept.blobs, swept.failed), (2, 0));
    assert_eq!(files(&root), [] as [std::path::PathBuf; 0]);
    assert_eq!(fixture.refs(), []);
    // One that cannot be removed stays pending and does not keep the others.
    for (id, seed) in [("d", 0), ("e", 1)] {
        fixture.share_blob(&blobs, id, id, seed).await;
        fresh(fixture.unshare(&format!("{id}-"), id).await);
    }
    let stuck = place(&root, hash(0));
    std::fs::remove_file(&stuck).unwrap();
    std::fs::create_dir(&stuck).unwrap();
    let swept = fixture.store.sweep_deleted(&blobs).await.unwrap();
    assert_eq!((swept.blobs, swept.failed), (1, 1));
    assert_eq!(fixture.refs(), [(hash(0), 0, false, true)]);
    std::fs::remove_dir(&stuck).unwrap();
    fixture.store.sweep_deleted(&blobs).await.unwrap();
    assert_eq!(fixture.refs(), []);
}

#[tokio::test]
async fn lf_11_marks_that_were_collected_still_keep_older_ops_out_and_shared_meshes_keep_theirs() {
    let fixture = Fixture::new();
    let blobs = fixture.blobs();
    let inline = || FileContent::inline(vec![1], None).ok();
    let mut local = new_mesh(&fixture, "home");
    local.broker_url = None;
    let mut shared = new_mesh(&fixture, "team");
    shared.broker_url = Some("ws://127.0.0.1:1".to_owned());
    let mut meshes = Vec::new();
    for new in [local, shared] {
        meshes.push(fixture.store.ensure_mesh(new).await.unwrap().mesh);
    }
    for mesh in &meshes {
        for op in [
            op(stamp(3, "m/a", 3), "kept", inline()),
            op(stamp(5, "m/a", 5), "gone", None),
            op(stamp(7, "m/a", 7), "late", None),
        ] {
            fixture.store.take_in(*mesh, op).await.unwrap();
        }
    }
    let life = i64::try_from(TOMBSTONE_LIFE.as_millis()).unwrap();
    // Deleted at NOW + 5 and NOW + 7: at the first moment only the older is old enough.
    let moment = WallMs(NOW.0 + life + 6);
    assert_eq!(
        sweep(&fixture.store, &blobs, moment, SWEEP_GRACE)
            .await
            .tombstones,
        1
    );
    assert_eq!(
        sweep(&fixture.store, &blobs, moment, SWEEP_GRACE)
            .await
            .tombstones,
        0
    );
    let marks = |mesh: heddle_core::ids::MeshId| -> i64 {
        let count = "SELECT count(*) FROM files WHERE tombstone = 1 AND mesh_id = ?1";
        fixture
            .raw()
            .query_row(count, [mesh.0.to_bytes()], |row| row.get(0))
            .unwrap()
    };
    assert_eq!((marks(meshes[0]), marks(meshes[1])), (1, 2));
    for mesh in meshes {
        let take = |op| fixture.store.take_in(mesh, op);
        let kept = Merged::Taken(Taken::Kept);
        assert_eq!(
            take(op(stamp(4, "m/a", 4), "gone", inline()))
                .await
                .unwrap(),
            kept
        );
        let same = op(stamp(5, "m/a", 5), "gone", None);
        assert_eq!(take(same).await.unwrap(), Merged::Taken(Taken::Same));
        assert_eq!(
            take(op(stamp(3, "m/a", 2), "kept", None)).await.unwrap(),
            kept
        );
        let younger = take(op(stamp(8, "m/a", 8), "gone", inline()))
            .await
            .unwrap();
        assert_eq!(younger, Merged::Taken(Taken::Applied));
        let another = take(op(stamp(1, "m/b", 1), "gone", inline()))
            .await
            .unwrap();
        assert_eq!(
            another,
            Merged::Taken(Taken::Applied),
            "a floor is one peer's"
        );
    }
}

/// One agent shares and deletes a few contents under its own paths, as fast as it can.
async fn churn(store: Store, blobs: Blobs, fixture: Arc<Fixture>, party: Party, rounds: usize) {
    for round in 0..rounds {
        let seed = u8::try_from(round % 3).unwrap();
        let at = path(&format!("f{}", round % 2));
        let bytes = bytes_of(seed);
        let change = fixture.change(party.clone(), &format!("s{round}"), 1);
        // It may have to wait for the sweep, which a task must not.
        let folder = blobs.clone();
        let landed = tokio::task::spawn_blocking(move || landed(&folder, &bytes));
        let content = NewContent::Blob(landed.await.unwrap());
        let new = NewFile {
            content,
            mime: None,
        };
        let shared: Applied<Infallible> =
            store.share_file(change, at.clone(), Ok(new)).await.unwrap();
        let id = fresh(shared).stamp.op;
        // LF-27: from the answer on, and until the path changes hands, the bytes are there.
        let row = store
            .find_file(fixture.mesh, FileFind::Id(id))
            .await
            .unwrap()
            .unwrap();
        let mut reader = blobs.read(row.hash, row.size).unwrap();
        reader.verify(&mut vec![0; 64 << 10]).unwrap();
        if round % 3 != 0 {
            let change = fixture.change(party.clone(), &format!("d{round}"), 2);
            let find = FileFind::Path(PeerId::new(&party.to_string()), at);
            fresh(store.delete_file(change, find, |_| ()).await.unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lf_26_lf_27_lf_28_shares_and_deletes_of_the_same_content_race_the_sweep() {
    let fixture = Arc::new(Fixture::new());
    let (blobs, root) = (fixture.blobs(), fixture.folder.path().join("blobs"));
    let stop = Arc::new(AtomicBool::new(false));
    let sweeper = {
        let (store, blobs, stop) = (fixture.store.clone(), blobs.clone(), Arc::clone(&stop));
        let runtime = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || {
            let mut taken = 0;
            while !stop.load(Ordering::SeqCst) {
                // No grace at all: only the holds stand between a sweep and a share.
                let swept = sweep(&store, &blobs, NOW, Duration::ZERO);
                taken += runtime.block_on(swept).blobs;
            }
            taken
        })
    };
    let agents = ["a", "b", "c", "d"].map(|name| {
        let (store, blobs) = (fixture.store.clone(), blobs.clone());
        let party = fixture.party(name);
        tokio::spawn(churn(store, blobs, Arc::clone(&fixture), party, 40))
    });
    for agent in agents {
        agent.await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    assert!(sweeper.await.unwrap() > 0, "the sweep never met anything");
    fixture.counts_are_right();
    sweep(&fixture.store, &blobs, NOW, Duration::ZERO).await;
    let named: BTreeSet<_> = fixture
        .refs()
        .into_iter()
        .map(|(hash, count, here, pending)| {
            assert!(count > 0 && here && !pending);
            place(&root, hash)
        })
        .collect();
    assert_eq!(files(&root).into_iter().collect::<BTreeSet<_>>(), named);
}
