//! A history that is an earlier copy of itself and went on: everything behind the last sure place gets a new one.

use heddle_core::ids::{ClientMessageId, IdKey};
use heddle_core::witness::Witness;

use super::check;
use super::script::Script;
use crate::test_support::{TestStorage, mesh, party};

/// ```text
/// part 1.1=a/one:A 1.2=a/one:X -> behind 1.1: 3 to epoch 2       or: no, or behind 1.1: 30 stay, epoch 2
/// ```
impl<S: TestStorage> Script<'_, S> {
    pub(super) async fn part(&self, seen: &[&str]) -> String {
        let witness = |text: &&str| {
            let (place, id) = text.split_once('=').unwrap();
            let (sender, id) = id.split_once(':').unwrap();
            let id = ClientMessageId::parse(id).unwrap();
            Witness {
                place: place.parse().unwrap(),
                id: IdKey::of(mesh(1), &party(sender), &id),
            }
        };
        let seen = seen.iter().map(witness).collect();
        match self.storage.part(mesh(1), seen).await.unwrap() {
            None => "no".to_owned(),
            Some(parted) => {
                let (after, moved, epoch) = (parted.after, parted.moved, parted.epoch);
                let how = if parted.is_left {
                    "stay, epoch"
                } else {
                    "to epoch"
                };
                format!("behind {after}: {moved} {how} {epoch}")
            }
        }
    }
}

/// One of everything that knows its place, three times.
const HISTORY: &str = "
    member a
    member b
    member c
    agent a/one
    agent b/one
    agent c/one
    subscribe b/one #ops
    subscribe c/one #ops
    revoke c a topic
    send from=a/one id=T1 fp=1 to=#ops mention=b/one -> created 1.1
    send from=a/one id=Q1 fp=1 to=queue:q -> created 1.2
    send from=a/one id=L1 fp=1 to=log -> created 1.3
    send from=a/one id=D1 fp=1 to=@b/one -> created 1.4
    age 10 -> 10
    send from=a/one id=T2 fp=1 to=#ops mention=b/one -> created 1.5
    send from=a/one id=Q2 fp=1 to=queue:q -> created 1.6
    send from=a/one id=L2 fp=1 to=log -> created 1.7
    send from=a/one id=D2 fp=1 to=@b/one priority=now -> created 1.8
    send from=a/one id=L3 fp=1 to=log -> created 1.9
    count -> 9: 0=9
    age 20 -> 20
    ack b 1.1/one 1.5/one -> 2
    shown b 1.5/one at=7
    bump -> 2
    send from=a/one id=L4 fp=1 to=log -> created 2.1
    send from=a/one id=T3 fp=1 to=#ops -> created 2.2
";

#[tokio::test]
async fn lf_16_what_stands_behind_the_last_sure_place_goes_on_in_a_new_epoch() {
    let text = "
        -- Who has seen the same, or less, or what is gone, says nothing against it.
        part -> no
        part 1.4=a/one:D1 1.9=a/one:L3 2.2=a/one:T3 -> no
        part 1.12=a/one:X -> no
        -- Another message was seen at 1.6 and at 1.8; at 1.4 it was the same.
        part 1.2=a/one:Q1 1.4=a/one:D1 1.6=b/one:X 1.8=b/one:Y -> behind 1.4: 7 to epoch 3
        epochs -> 3: 1.4 3.7
        history -> 1.1=T 1.2=Q 1.3=L 1.4=D 3.1=T 3.2=Q 3.3=L 3.4=D 3.5=L 3.6=L 3.7=T
        log -> 1.3<0.0 3.3<1.3 3.5<3.3 3.6<3.5
        -- What a member holds it still holds; what it does not comes at the new place.
        deliveries b -> 3.4/one 1.4/one 3.7/one
        ack b 1.8/one 2.2/one -> 0
        ack b 3.4/one -> 1
        mentions b/one -> 1.1 3.1
        known from=a/one id=D2 -> 3.4 fp=1
        send from=a/one id=D2 fp=1 to=@b/one priority=now -> duplicate 3.4
        send from=a/one id=D3 fp=1 to=@b/one -> created 3.8
        take c/one q now=5 lease=10 max=9 -> 1.2#1*1 3.2#2*1
        orphans -> none
        -- It is known, and begins no further epoch.
        part 1.2=a/one:Q1 1.4=a/one:D1 1.6=b/one:X 1.8=b/one:Y -> no
        part 1.5=a/one:T2 1.6=a/one:Q2 2.2=a/one:T3 -> no
        epochs -> 3: 1.4 3.8
        ";
    check(&format!("{HISTORY}{text}")).await;
}

#[tokio::test]
async fn lf_16_more_than_was_reached_parts_too_where_something_stands_behind_the_sure_place() {
    let text = "
        -- At its end they are the same: a new epoch is all that is due, and not this operation's.
        part 2.2=a/one:T3 2.5=a/one:X -> no
        part 2.1=a/one:L4 2.5=a/one:X -> behind 2.1: 1 to epoch 3
        epochs -> 3: 1.9 2.1 3.1
        orphans -> none
        -- Nothing of it is sure.
        part 1.1=b/one:X -> behind 0.0: 11 to epoch 4
        epochs -> 4: 4.11
        log -> 4.3<0.0 4.7<4.3 4.9<4.7 4.10<4.9
        ";
    check(&format!("{HISTORY}{text}")).await;
}

#[tokio::test]
async fn lf_16_too_many_stay_where_they_are_and_one_epoch_begins() {
    use std::fmt::Write as _;
    let mut text = HISTORY.to_owned();
    for number in 0..12 {
        let _ = writeln!(text, "send from=a/one id=M{number} fp=1 to=#ops");
    }
    text.push_str(
        "
        part 1.1=a/one:T1 1.2=b/one:X -> behind 1.1: 22 stay, epoch 2
        epochs -> 2: 1.9 2.14
        part 1.1=a/one:T1 2.1=b/one:X -> behind 1.1: 22 stay, epoch 3
        part 1.1=a/one:T1 2.1=b/one:X -> behind 1.1: 22 stay, epoch 3
        epochs -> 3: 1.9 2.14
        ",
    );
    check(&text).await;
}
