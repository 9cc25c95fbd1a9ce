//! Shared files in the store: the gate, last writer wins, and the count of who names a blob.

use std::collections::BTreeSet;
use std::convert::Infallible;

use heddle_core::clock::{Ids, WallMs};
use heddle_core::file::{ContentHash, FileContent, FilePath, MediaType};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::op::{DataOp, FileChange, OpBody, Over};
use heddle_store::{
    Applied, Blobs, FileBytes, FileFilter, FileFind, FileRow, Merged, NewContent, NewFile, Receipt,
    Taken,
};
use proptest::prelude::*;

use crate::blobs::{bytes_of, landed};
use crate::data::fresh;
use crate::fixture::{Fixture, NOW};

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::parse(text).unwrap()
}

pub(crate) fn stamp(lamport: u64, peer: &str, op: u128) -> Stamp {
    Stamp {
        lamport,
        peer: PeerId::new(peer),
        op: OpId::from_bytes(op.to_be_bytes()),
    }
}

pub(crate) fn op(stamp: Stamp, at: &str, write: Option<FileContent>) -> DataOp {
    DataOp {
        at: WallMs(NOW.0 + i64::try_from(stamp.lamport).unwrap()),
        over: Over::Unsaid,
        stamp,
        incarnation: 1,
        body: OpBody::File(FileChange {
            path: path(at),
            write,
        }),
    }
}

/// Content of a blob that is said to exist.
pub(crate) fn told(seed: u8) -> FileContent {
    let bytes = bytes_of(seed);
    FileContent::blob(ContentHash::of(&bytes), bytes.len() as u64, None).unwrap()
}

impl Fixture {
    pub(crate) fn blobs(&self) -> Blobs {
        Blobs::open(&self.folder.path().join("blobs")).unwrap()
    }

    pub(crate) async fn share(
        &self,
        id: &str,
        at: &str,
        content: NewContent,
    ) -> Applied<Infallible> {
        let change = self.change(self.party("planner"), id, 1);
        let new = NewFile {
            content,
            mime: MediaType::parse("text/plain").ok(),
        };
        self.store
            .share_file(change, path(at), Ok(new))
            .await
            .unwrap()
    }

    pub(crate) async fn share_blob(&self, blobs: &Blobs, id: &str, at: &str, seed: u8) -> Receipt {
        let content = NewContent::Blob(landed(blobs, &bytes_of(seed)));
        fresh(self.share(id, at, content).await)
    }

    pub(crate) async fn unshare(&self, id: &str, at: &str) -> Applied<&'static str> {
        let party = self.party("planner");
        let find = FileFind::Path(PeerId::new(&party.to_string()), path(at));
        let change = self.change(party, id, 2);
        let deleted = self.store.delete_file(change, find, |_| "foreign");
        deleted.await.unwrap()
    }

    pub(crate) async fn file(&self, at: &str) -> Option<FileRow> {
        let peer = PeerId::new(&self.party("planner").to_string());
        let find = FileFind::Path(peer, path(at));
        self.store.find_file(self.mesh, find).await.unwrap()
    }

    /// `(sha256, ref_count, here, pending_unlink)`.
    pub(crate) fn refs(&self) -> Vec<(ContentHash, i64, bool, bool)> {
        let raw = self.raw();
        let mut statement = raw
            .prepare("SELECT sha256, ref_count, here, pending_unlink FROM blob_refs")
            .unwrap();
        let rows = statement.query_map([], |row| {
            Ok((
                ContentHash(row.get(0)?),
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
            ))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// LF-26: counted anew from the rows, which know nothing of the counter.
    #[track_caller]
    pub(crate) fn counts_are_right(&self) {
        let raw = self.raw();
        let wrong: i64 = raw
            .query_row(
                "SELECT count(*) FROM (
                    SELECT sha256, count(*) AS n FROM files WHERE storage = 'blob' GROUP BY sha256
                 ) AS rows FULL JOIN (SELECT * FROM blob_refs WHERE ref_count <> 0) AS refs
                 ON rows.sha256 = refs.sha256 WHERE n IS NOT ref_count",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(wrong, 0, "{:?}", self.refs());
    }

    /// What every replica must have alike.
    fn replicated(&self) -> Vec<String> {
        let raw = self.raw();
        let mut statement = raw
            .prepare(
                "SELECT json_array(peer, path, updated_at, lamport, incarnation, hex(op_id),
                     tombstone, storage, hex(sha256), size, mime, hex(content))
                 FROM files ORDER BY peer, path",
            )
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

#[tokio::test]
async fn a_file_is_kept_in_its_row_or_as_a_blob_and_the_gate_answers_again() {
    let fixture = Fixture::new();
    let blobs = fixture.blobs();
    let small = fixture.share("a", "docs/plan.md", NewContent::Inline(b"plan".to_vec()));
    let receipt = fresh(small.await);
    assert_eq!(receipt.note["path"], "docs/plan.md");
    assert_eq!(receipt.note["size"], 4);
    let row = fixture.file("docs/plan.md").await.unwrap();
    assert_eq!((row.id(), row.bytes), (receipt.stamp.op, FileBytes::Inline));
    assert_eq!(row.mime.as_deref(), Some("text/plain"));
    let content = fixture
        .store
        .file_content(fixture.mesh, &row)
        .await
        .unwrap();
    assert_eq!(content.as_deref(), Some(&b"plan"[..]));
    // The same again is the same; another under the same id is refused; neither changes a thing.
    let again = fixture.share("a", "docs/plan.md", NewContent::Inline(b"plan".to_vec()));
    assert_eq!(again.await, Applied::Duplicate(receipt));
    let change = fixture.change(fixture.party("planner"), "a", 9);
    let refused = fixture.store.share_file(change, path("x"), Err("no room"));
    assert!(matches!(refused.await.unwrap(), Applied::Conflict { .. }));
    let change = fixture.change(fixture.party("planner"), "b", 9);
    let refused = fixture.store.share_file(change, path("x"), Err("no room"));
    assert_eq!(refused.await.unwrap(), Applied::Refused("no room"));
    assert_eq!(fixture.file("x").await, None);
    let receipt = fixture.share_blob(&blobs, "b", "large", 0).await;
    let row = fixture.file("large").await.unwrap();
    assert_eq!((row.id(), row.bytes), (receipt.stamp.op, FileBytes::Blob));
    assert_eq!(fixture.refs(), [(row.hash, 1, true, false)]);
    let by_id = FileFind::Id(row.id());
    assert_eq!(
        fixture
            .store
            .find_file(fixture.mesh, by_id.clone())
            .await
            .unwrap(),
        Some(row)
    );
    let elsewhere = MeshId(fixture.ids.ulid());
    assert_eq!(
        fixture.store.find_file(elsewhere, by_id).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn c41_a_path_holds_one_file_and_the_owner_alone_deletes_it() {
    let fixture = Fixture::new();
    let blobs = fixture.blobs();
    let first = fixture.share_blob(&blobs, "a", "f", 0).await;
    let second = fixture.share_blob(&blobs, "b", "f", 1).await;
    assert_ne!(first.stamp.op, second.stamp.op);
    let gone = fixture
        .store
        .find_file(fixture.mesh, FileFind::Id(first.stamp.op));
    assert_eq!(gone.await.unwrap(), None);
    let refs = fixture.refs();
    let of = |seed| ContentHash::of(&bytes_of(seed));
    assert!(refs.contains(&(of(0), 0, true, true)), "{refs:?}");
    assert!(refs.contains(&(of(1), 1, true, false)), "{refs:?}");
    let count = "SELECT count(*) FROM files";
    let rows: i64 = fixture
        .raw()
        .query_row(count, [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 1);
    let stranger = fixture.change(fixture.party("coder"), "c", 1);
    let find = FileFind::Id(second.stamp.op);
    let refused = fixture
        .store
        .delete_file(stranger, find, |row| row.path.clone());
    assert_eq!(refused.await.unwrap(), Applied::Refused("f".to_owned()));
    fresh(fixture.unshare("d", "f").await);
    assert_eq!(fixture.unshare("e", "f").await, Applied::Absent);
    assert_eq!(fixture.file("f").await, None);
    assert!(
        fixture
            .refs()
            .iter()
            .all(|(_, count, _, pending)| *count == 0 && *pending)
    );
    fixture.counts_are_right();
}

#[tokio::test]
async fn c22_a_blob_that_is_named_again_loses_its_mark_in_the_same_transaction() {
    let fixture = Fixture::new();
    let blobs = fixture.blobs();
    fixture.share_blob(&blobs, "a", "f", 0).await;
    fresh(fixture.unshare("b", "f").await);
    let hash = ContentHash::of(&bytes_of(0));
    assert_eq!(fixture.refs(), [(hash, 0, true, true)]);
    fixture.share_blob(&blobs, "c", "g", 0).await;
    assert_eq!(fixture.refs(), [(hash, 1, true, false)]);
    let swept = fixture.store.sweep_deleted(&blobs).await.unwrap();
    assert_eq!(swept.blobs, 0);
    assert!(blobs.read(hash, bytes_of(0).len() as u64).is_ok());
}

#[tokio::test]
async fn a_blob_that_is_elsewhere_is_said_to_be_until_its_bytes_arrive() {
    let fixture = Fixture::new();
    let blobs = fixture.blobs();
    let (store, mesh) = (&fixture.store, fixture.mesh);
    let peer = fixture.party("planner").to_string();
    let share = op(stamp(5, &peer, 1), "f", Some(told(0)));
    assert_eq!(
        store.take_in(mesh, share).await.unwrap(),
        Merged::Taken(Taken::Applied)
    );
    assert_eq!(fixture.file("f").await.unwrap().bytes, FileBytes::Elsewhere);
    // Somebody says that the same bytes have another length: he gets what he says, never the bytes.
    let hash = ContentHash::of(&bytes_of(0));
    let lie = FileContent::blob(hash, 70_000, None).unwrap();
    store
        .take_in(mesh, op(stamp(6, &peer, 2), "lie", Some(lie)))
        .await
        .unwrap();
    let wanted = store.wanted_blobs(10).await.unwrap();
    assert_eq!(wanted.len(), 1);
    assert_eq!(
        (wanted[0].hash, wanted[0].size),
        (hash, bytes_of(0).len() as u64)
    );
    assert!(
        store
            .blob_arrived(landed(&blobs, &bytes_of(0)))
            .await
            .unwrap()
    );
    assert_eq!(fixture.file("f").await.unwrap().bytes, FileBytes::Blob);
    assert_eq!(
        fixture.file("lie").await.unwrap().bytes,
        FileBytes::Elsewhere
    );
    assert_eq!(store.wanted_blobs(10).await.unwrap(), []);
    let nobodys = store.blob_arrived(landed(&blobs, &bytes_of(9))).await;
    assert!(!nobodys.unwrap(), "nobody asked for it");
    fixture.counts_are_right();
}

#[tokio::test]
async fn lf_08_lf_09_lf_10_any_order_of_the_same_ops_leaves_the_same_rows() {
    let inline = |text: &str| FileContent::inline(text.as_bytes().to_vec(), None).ok();
    let ops = [
        op(stamp(1, "m/a", 1), "f", inline("one")),
        op(stamp(2, "m/a", 2), "f", Some(told(0))),
        op(stamp(2, "m/a", 3), "f", Some(told(1))),
        op(stamp(3, "m/a", 4), "g", Some(told(1))),
        op(stamp(4, "m/a", 5), "g", None),
        op(stamp(2, "m/b", 6), "f", Some(told(1))),
        op(stamp(9, "m/b", 7), "h", None),
    ];
    let mut outcomes = BTreeSet::new();
    for turn in 0..ops.len() {
        let fixture = Fixture::new();
        let mut order = ops.to_vec();
        order.rotate_left(turn);
        if turn % 2 == 1 {
            order.reverse();
        }
        order.extend(ops.iter().cloned());
        for op in order {
            fixture.store.take_in(fixture.mesh, op).await.unwrap();
            fixture.counts_are_right();
        }
        outcomes.insert(fixture.replicated());
    }
    assert_eq!(outcomes.len(), 1, "{outcomes:#?}");
    assert_eq!(outcomes.first().unwrap().len(), 4);
}

#[tokio::test]
async fn lists_are_paged_to_their_end_and_prefixes_are_taken_literally() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    for (n, (peer, at)) in [
        ("m/a", "d/x"),
        ("m/a", "d/y"),
        ("m/a", "e"),
        ("m/b", "d/x"),
        ("m/b", "D/x"),
    ]
    .into_iter()
    .enumerate()
    {
        let content = FileContent::inline(vec![1], None).ok();
        let number = n as u64 + 1;
        let op = op(stamp(number, peer, u128::from(number)), at, content);
        store.take_in(fixture.mesh, op).await.unwrap();
    }
    let list = |peer: Option<&str>, prefix: &str, limit| {
        let mut filter = FileFilter {
            mesh: fixture.mesh,
            peer: peer.map(PeerId::new),
            prefix: prefix.to_owned(),
            after: None,
            limit,
        };
        async move {
            let mut all = Vec::new();
            loop {
                let (rows, more) = store.list_files(filter.clone()).await.unwrap();
                assert!(rows.len() <= limit);
                filter.after = rows.last().map(|row| row.place);
                let name = |row: &FileRow| format!("{} {}", row.stamp.peer.as_str(), row.path);
                all.extend(rows.iter().map(name));
                if !more {
                    return all;
                }
            }
        }
    };
    for limit in [1, 2, 100] {
        let all = ["m/a d/x", "m/a d/y", "m/a e", "m/b D/x", "m/b d/x"];
        assert_eq!(list(None, "", limit).await, all);
        assert_eq!(list(Some("m/a"), "", limit).await, all[..3]);
        assert_eq!(list(Some("m/b"), "d/", limit).await, [all[4]]);
        assert_eq!(list(None, "d/", limit).await, [all[0], all[1], all[4]]);
        assert_eq!(list(None, "%", limit).await, [] as [&str; 0]);
        assert_eq!(list(Some("m/c"), "", limit).await, [] as [&str; 0]);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take {
        lamport: u64,
        peer: u8,
        at: u8,
        content: Option<u8>,
    },
    Share {
        at: u8,
        content: u8,
    },
    Delete {
        at: u8,
    },
    Sweep,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6_u64, 0..2_u8, 0..2_u8, proptest::option::of(0..3_u8)).prop_map(
            |(lamport, peer, at, content)| Step::Take {
                lamport,
                peer,
                at,
                content
            }
        ),
        (0..2_u8, 0..3_u8).prop_map(|(at, content)| Step::Share { at, content }),
        (0..2_u8).prop_map(|at| Step::Delete { at }),
        Just(Step::Sweep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn lf_26_lf_27_after_any_steps_every_count_is_right_and_every_blob_that_is_here_is_there(
        steps in proptest::collection::vec(any_step(), 1..24)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let fixture = Fixture::new();
            let blobs = fixture.blobs();
            for (n, step) in steps.into_iter().enumerate() {
                let id = n.to_string();
                match step {
                    Step::Take { lamport, peer, at, content } => {
                        let stamp = stamp(lamport, &format!("m/{peer}"), n as u128 % 7);
                        let op = op(stamp, &at.to_string(), content.map(told));
                        fixture.store.take_in(fixture.mesh, op).await.unwrap();
                    }
                    Step::Share { at, content } => {
                        fixture.share_blob(&blobs, &id, &at.to_string(), content).await;
                    }
                    Step::Delete { at } => drop(fixture.unshare(&id, &at.to_string()).await),
                    Step::Sweep => drop(fixture.store.sweep_deleted(&blobs).await.unwrap()),
                }
                fixture.counts_are_right();
                for (hash, _, here, _) in fixture.refs() {
                    if here {
                        let mut reader = blobs.read(hash, bytes_of(0).len() as u64).unwrap();
                        reader.verify(&mut vec![0; 64 << 10]).unwrap();
                    }
                }
            }
        });
    }
}
