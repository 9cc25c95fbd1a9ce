//! Who is told that its write was lost: whoever wrote without knowing of the other, and nobody else.

use heddle_core::clock::Ids;
use heddle_core::ids::{ClientMessageId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::limits::{LOST_VALUE_BYTES_MAX, LOST_WRITES_MAX, WARNINGS_MAX};
use heddle_core::op::{DataOp, MemoryChange, NewState, OpBody, Over, StateChange};
use heddle_store::{Applied, Loss, LossAbout, LossKind, LostValue, NewOp};
use serde_json::{Value, json};

use crate::data::{key, note, value};
use crate::fixture::{NOW, at, open};
use crate::sync_home::{Home, op_of};

impl Home {
    /// Sets it, or with nothing deletes it; whether there was something to do.
    pub(crate) async fn write(&self, at: &str, new: Option<Value>) -> bool {
        let (change, at) = (self.change(), key(at));
        let applied: Applied<()> = match new {
            Some(new) => {
                let new = NewState { value: value(&new) };
                self.store.set_state(change, at, Ok(new)).await.unwrap()
            }
            None => self.store.delete_state(change, at).await.unwrap(),
        };
        matches!(applied, Applied::Fresh(_))
    }

    async fn remember(&self, at: &str, new: &Value) {
        let applied = self
            .store
            .remember::<()>(self.change(), key(at), Ok(note(new)));
        assert!(matches!(applied.await.unwrap(), Applied::Fresh(_)));
    }

    async fn forget(&self, at: &str) {
        let applied = self.store.forget::<()>(self.change(), key(at));
        assert!(matches!(applied.await.unwrap(), Applied::Fresh(_)));
    }

    pub(crate) async fn told(&self) -> Vec<Loss> {
        let agent = self.party().agent;
        let told = self.store.take_warnings(self.mesh, agent, NOW);
        told.await.unwrap()
    }

    /// The same home after its process ended, with the file as it is now.
    fn again(self) -> Self {
        self.store.stop();
        let store = open(&self.folder.path().join("data.db")).unwrap();
        Self { store, ..self }
    }
}

/// The log of a broker: places in the order in which ops came.
#[derive(Default)]
pub(crate) struct Log(pub(crate) Vec<NewOp>);

impl Log {
    /// What the home has made and the log does not have.
    pub(crate) async fn push(&mut self, home: &Home) {
        for due in home.due().await {
            let op = op_of(&due);
            let id = ClientMessageId::parse(&op.stamp.op.to_string()).unwrap();
            if self.0.iter().any(|known| known.client_message_id == id) {
                continue;
            }
            let seq = u64::try_from(self.0.len()).unwrap() + 1;
            self.0.push(NewOp {
                history_id: at(1, seq),
                previous: if seq == 1 { at(0, 0) } else { at(1, seq - 1) },
                sender: op.stamp.peer.as_str().parse().unwrap(),
                client_message_id: id,
                op: Ok(op.to_bytes().unwrap()),
            });
        }
    }

    /// Up to so many places behind those that the home has read; how many were read by then.
    pub(crate) async fn pull(&self, home: &Home, most: usize) -> usize {
        let from = usize::try_from(home.head().await.log.seq).unwrap();
        let end = self.0.len().min(from.saturating_add(most));
        home.receive(self.0[from..end].to_vec()).await;
        while home.apply().await.more {}
        end
    }

    async fn exchange(&mut self, homes: &[&Home]) {
        for home in homes {
            self.push(home).await;
        }
        for home in homes {
            self.pull(home, usize::MAX).await;
        }
    }
}

async fn two() -> (Home, Home) {
    let (one, other) = (Home::shared(1).await, Home::shared(2).await);
    assert_ne!(one.member, other.member);
    (one, other)
}

fn whole(text: &str) -> Option<LostValue> {
    Some(LostValue::Whole(text.to_owned()))
}

#[tokio::test]
async fn both_write_cut_off_and_exactly_the_loser_is_told_once_with_both_values() {
    let (ann, bob) = two().await;
    let mut log = Log::default();
    let mine = ann.set("k", json!("ann")).await.stamp;
    bob.set("other", json!(0)).await;
    let theirs = bob.set("k", json!({"by": "bob"})).await.stamp;
    assert!(theirs > mine, "bob's counter is ahead");
    log.exchange(&[&ann, &bob]).await;
    assert_eq!(ann.get("k").await.as_deref(), Some(r#"{"by":"bob"}"#));
    assert_eq!(bob.told().await, [], "who won");
    // It waits through a restart, and through the log coming once more.
    let ann = ann.again();
    ann.receive(log.0.clone()).await;
    ann.apply().await;
    let told = ann.told().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].kind, LossKind::StateSuperseded);
    let about = LossAbout::Write {
        key: "k".to_owned(),
        left_out: 0,
    };
    assert_eq!(told[0].about, about);
    let yours = (told[0].yours.peer.as_str(), told[0].yours.lamport);
    assert_eq!(yours, (mine.peer.as_str(), mine.lamport));
    assert_eq!(told[0].yours.value, whole("\"ann\""));
    let by = (told[0].theirs.peer.as_str(), told[0].theirs.lamport);
    assert_eq!(by, (theirs.peer.as_str(), theirs.lamport));
    assert_eq!(told[0].theirs.value, whole(r#"{"by":"bob"}"#));
    let ann = ann.again();
    ann.receive(log.0.clone()).await;
    ann.apply().await;
    assert_eq!(ann.told().await, [], "once");
}

#[tokio::test]
async fn the_loser_is_told_also_where_its_write_was_in_the_log_first() {
    let (ann, bob) = two().await;
    let mut log = Log::default();
    ann.set("k", json!(1)).await;
    log.push(&ann).await;
    log.pull(&ann, usize::MAX).await;
    assert_eq!(log.0.len(), 1, "it is confirmed");
    // Bob writes without having read that.
    bob.set("ahead", json!(0)).await;
    for number in 0..3 {
        bob.set("k", json!([number])).await;
    }
    log.exchange(&[&bob, &ann]).await;
    let told = ann.told().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        told[0].theirs.value,
        whole("[0]"),
        "the one that took its place"
    );
    assert_eq!(bob.told().await, []);
}

#[tokio::test]
async fn writes_one_after_the_other_warn_nobody() {
    let (ann, bob) = two().await;
    let mut log = Log::default();
    for number in 0..3 {
        ann.set("k", json!(["ann", number])).await;
        ann.set("k", json!(["ann again", number])).await;
        log.exchange(&[&ann, &bob]).await;
        bob.write("k", Some(json!(["bob", number]))).await;
        log.exchange(&[&bob, &ann]).await;
        assert!(ann.write("k", None).await);
        log.exchange(&[&ann, &bob]).await;
        assert!(bob.write("k", Some(json!(number))).await);
        log.exchange(&[&bob, &ann]).await;
    }
    assert_eq!(ann.told().await, []);
    assert_eq!(bob.told().await, []);
}

#[tokio::test]
async fn deletes_lose_and_win_like_any_write_and_the_same_value_is_no_loss() {
    let (ann, bob) = two().await;
    let mut log = Log::default();
    for at in ["kept", "gone", "same"] {
        ann.set(at, json!(0)).await;
    }
    log.exchange(&[&ann, &bob]).await;
    ann.write("kept", None).await;
    ann.write("gone", Some(json!(1))).await;
    ann.write("same", Some(json!(7))).await;
    for number in 0..5 {
        bob.set("ahead", json!(number)).await;
    }
    bob.write("kept", Some(json!(2))).await;
    bob.write("gone", None).await;
    bob.write("same", Some(json!(7))).await;
    log.exchange(&[&ann, &bob]).await;
    let told = ann.told().await;
    let sides: Vec<_> = told
        .iter()
        .map(|loss| (loss.yours.value.clone(), loss.theirs.value.clone()))
        .collect();
    let deleted = Some(LostValue::Deleted);
    assert_eq!(
        sides,
        [(deleted.clone(), whole("2")), (whole("1"), deleted)]
    );
    assert_eq!(bob.told().await, []);
}

/// Under its own id it is an older build's, which does not say; under a derived one a row of before the mesh was shared.
#[tokio::test]
async fn a_published_row_was_made_in_nobodys_sight_and_an_op_that_does_not_say_warns_nobody() {
    let (ann, bob) = two().await;
    for (number, is_published) in [(1, false), (2, true)] {
        let at_key = format!("k{number}");
        bob.set(&at_key, json!("bob")).await;
        let op = DataOp {
            stamp: Stamp {
                lamport: 50 * number,
                peer: PeerId::new(&ann.party().to_string()),
                op: OpId(ann.ids.uuid_v7()),
            },
            incarnation: 1,
            at: NOW,
            over: Over::Unsaid,
            body: OpBody::State(StateChange {
                key: key(&at_key),
                write: Some(NewState {
                    value: value(&json!("ann")),
                }),
            }),
        };
        let id = if is_published {
            op.published_id(ann.mesh)
        } else {
            op.stamp.op
        };
        let previous = if number == 1 { at(0, 0) } else { at(1, 1) };
        bob.receive(vec![NewOp {
            history_id: at(1, number),
            previous,
            sender: ann.party(),
            client_message_id: ClientMessageId::parse(&id.to_string()).unwrap(),
            op: Ok(op.to_bytes().unwrap()),
        }])
        .await;
        assert_eq!(bob.apply().await.applied, 1);
        assert_eq!(bob.get(&at_key).await.as_deref(), Some("\"ann\""));
        assert_eq!(bob.told().await.len(), usize::from(is_published));
    }
}

#[tokio::test]
async fn a_home_that_was_put_back_is_told_of_memory_and_state_that_its_own_older_writes_replace() {
    let ann = Home::shared(1).await;
    let mut log = Log::default();
    ann.set("s", json!(0)).await;
    ann.remember("m", &json!(0)).await;
    ann.remember("f", &json!(0)).await;
    log.exchange(&[&ann]).await;
    let ann = ann.again();
    ann.store.stop();
    let file = ann.folder.path().join("data.db");
    let copy = ann.folder.path().join("older.db");
    std::fs::copy(&file, &copy).unwrap();
    let ann = ann.again();
    // What the older copy does not know: in the log it is.
    for number in 0..5 {
        ann.set("ahead", json!(number)).await;
    }
    ann.set("s", json!(1)).await;
    ann.remember("m", &json!(1)).await;
    ann.remember("f", &json!(1)).await;
    ann.remember("untouched", &json!(1)).await;
    log.exchange(&[&ann]).await;
    assert_eq!(ann.told().await, []);
    ann.store.stop();
    for beside in ["data.db-wal", "data.db-shm"] {
        let _ = std::fs::remove_file(ann.folder.path().join(beside));
    }
    std::fs::copy(&copy, &file).unwrap();
    let ann = ann.again();
    ann.set("s", json!(2)).await;
    ann.remember("m", &json!(2)).await;
    ann.forget("f").await;
    log.exchange(&[&ann]).await;
    let mut told = ann.told().await;
    told.sort_by_key(|loss| loss.yours.lamport);
    let kinds: Vec<_> = told.iter().map(|loss| loss.kind).collect();
    let memory = LossKind::MemorySuperseded;
    assert_eq!(kinds, [LossKind::StateSuperseded, memory, memory]);
    for loss in &told {
        assert_eq!(loss.yours.peer, loss.theirs.peer);
        assert_eq!(loss.theirs.value, whole("1"));
    }
    assert_eq!(told[1].yours.value, whole("2"));
    assert_eq!(told[2].yours.value, Some(LostValue::Deleted));
}

#[tokio::test]
async fn a_loss_in_ones_own_name_says_what_stands_when_it_is_told_for_memory_and_state() {
    let ann = Home::shared(1).await;
    let (state, memory) = (ann.party(), ann.party());
    ann.set("s", json!("mine")).await;
    ann.remember("m", &json!("mine")).await;
    // What this home had made before it was put back, and what it made of that.
    let mut seq = 0;
    for (lamport, text) in [(50, "forgotten"), (60, "later")] {
        for body in [
            OpBody::State(StateChange {
                key: key("s"),
                write: Some(NewState {
                    value: value(&json!(text)),
                }),
            }),
            OpBody::Memory(MemoryChange {
                key: key("m"),
                write: Some(note(&json!(text))),
            }),
        ] {
            seq += 1;
            let sender = if matches!(body, OpBody::State(_)) {
                &state
            } else {
                &memory
            };
            let op = DataOp {
                stamp: Stamp {
                    lamport,
                    peer: PeerId::new(&sender.to_string()),
                    op: OpId(ann.ids.uuid_v7()),
                },
                incarnation: 1,
                at: NOW,
                // The later one is over the first, which its author had seen.
                over: if lamport == 50 {
                    Over::Nothing
                } else {
                    Over::Unsaid
                },
                body,
            };
            ann.receive(vec![NewOp {
                history_id: at(1, seq),
                previous: if seq == 1 { at(0, 0) } else { at(1, seq - 1) },
                sender: sender.clone(),
                client_message_id: ClientMessageId::parse(&op.stamp.op.to_string()).unwrap(),
                op: Ok(op.to_bytes().unwrap()),
            }])
            .await;
            assert_eq!(ann.apply().await.applied, 1);
        }
    }
    let told = ann.told().await;
    assert_eq!(told.len(), 2, "{told:?}");
    for loss in &told {
        assert_eq!(loss.theirs.value, whole("\"forgotten\""));
        let now = loss.now.as_ref().map(|now| now.value.clone());
        assert_eq!(now, Some(whole("\"later\"")), "{loss:?}");
    }
}

/// Sent again as a row it does not say any more what it was made over; it was made after that write, in one life of one file.
#[tokio::test]
async fn a_delete_that_was_given_back_warns_nobody_of_the_write_that_it_was_made_over() {
    let ann = Home::shared(1).await;
    ann.set("k", json!("mine")).await;
    let op = |lamport, incarnation| DataOp {
        stamp: Stamp {
            lamport,
            peer: PeerId::new(&ann.party().to_string()),
            op: OpId(ann.ids.uuid_v7()),
        },
        incarnation,
        at: NOW,
        over: Over::Unsaid,
        body: OpBody::State(StateChange {
            key: key("k"),
            write: None,
        }),
    };
    let life = ann.store.data_clock(ann.mesh).await.unwrap().incarnation;
    // What came back began a new life of the file: the second one is of the life before.
    for (seq, op, told) in [(1, op(50, life), 0), (2, op(90, life), 1)] {
        if seq == 2 {
            ann.set("k", json!("after it was put back")).await;
        }
        ann.receive(vec![NewOp {
            history_id: at(1, seq),
            previous: if seq == 1 { at(0, 0) } else { at(1, seq - 1) },
            sender: ann.party(),
            client_message_id: ClientMessageId::parse(&op.published_id(ann.mesh).to_string())
                .unwrap(),
            op: Ok(op.to_bytes().unwrap()),
        }])
        .await;
        assert_eq!(ann.apply().await.applied, 1);
        assert_eq!(ann.get("k").await, None);
        assert_eq!(ann.told().await.len(), told, "{seq}");
    }
}

#[tokio::test]
async fn what_waits_to_be_told_is_bounded_in_number_and_size_and_counts_the_rest() {
    let (ann, bob) = two().await;
    let mut log = Log::default();
    let long = json!("é".repeat(LOST_VALUE_BYTES_MAX * 2));
    let over = 3;
    let count = LOST_WRITES_MAX + over;
    for number in 0..count {
        let at = format!("k{number:04}");
        ann.write(&at, Some(long.clone())).await;
        // Bob's counter is ahead of Ann's for each of them.
        bob.set("ahead", json!(number)).await;
        bob.write(&at, Some(json!(number))).await;
    }
    for home in [&ann, &bob] {
        while !home.due().await.is_empty() {
            log.push(home).await;
            log.pull(home, usize::MAX).await;
        }
    }
    log.exchange(&[&ann, &bob]).await;
    let mut told = Vec::new();
    loop {
        let page = ann.told().await;
        assert!(page.len() <= WARNINGS_MAX);
        if page.is_empty() {
            break;
        }
        told.extend(page);
    }
    assert_eq!(told.len(), LOST_WRITES_MAX);
    let left_out: Vec<u64> = told
        .iter()
        .map(|loss| match &loss.about {
            LossAbout::Write { left_out, .. } => *left_out,
            other @ LossAbout::Task { .. } => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(left_out[0], u64::try_from(over).unwrap());
    assert_eq!(left_out.iter().sum::<u64>(), left_out[0]);
    for loss in &told {
        let Some(LostValue::Begins(text, bytes)) = &loss.yours.value else {
            panic!("{loss:?}");
        };
        assert!(text.len() <= LOST_VALUE_BYTES_MAX);
        assert_eq!(*bytes, u64::try_from(long.to_string().len()).unwrap());
    }
}
