//! The rest of the little language: queues, receipts, sessions, upkeep.
//!
//! ```text
//! take a/one q now=5 lease=10 max=2 -> 1.1#1*1 1.2#2*1   place # fence * delivery count
//! done a/one q 1.1#1 -> apply                        also already, stale, unknown; release likewise
//! longer a/one q now=5 lease=10 1.1#1 -> apply       a lease renewed
//! hold q 1.1#1 -> held                               taken back: it cannot be given out
//! counts now=5 -> q=2/1                               ready / leased
//! held a max=2 -> 1.1/one:5,7,- next                  what was acknowledged, gone=N for bodies that are not there
//! shown a 1.1/one at=7 -> 1                          acked likewise
//! explain from=a/one id=A -> …                       mentions a/one after=1.1 -> 1.2
//! age 7 -> 7                                         the mesh is so old; notes from before a second number go
//! sweep 2001 -> 1                                    prune 5 -> 1        count -> 3
//! session a -> 1 ; renew a 1 200 -> yes ; end a 1 -> yes ; expire 100 -> 1 ; present 50 -> a=70
//! ```

use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::ids::HistoryId;
use heddle_core::work::{Settle, Settled};

use super::script::{AT, Script, fields, join, number, place, queue, refused, send_id, short};
use crate::storage::{
    DeliveryPlace, Explanation, LeaseMs, Leased, PageLimit, QueueCount, Receipt, ReceiptLevel,
    Taker,
};
use crate::test_support::{TestStorage, member, mesh, name_of, party};

fn leased(text: &str) -> Leased {
    let (place, fence) = text.split_once('#').unwrap();
    Leased {
        history_id: place.parse().unwrap(),
        fence: fence.parse().unwrap(),
    }
}

fn verdict(settled: Settled) -> String {
    match settled {
        Settled::Apply => "apply",
        Settled::Already => "already",
        Settled::StaleFence => "stale",
        Settled::Unknown => "unknown",
    }
    .to_owned()
}

impl<S: TestStorage> Script<'_, S> {
    pub(super) async fn more(&self, verb: &str, rest: &[&str]) -> String {
        match verb {
            "take" => self.take(rest).await,
            "done" => self.settle(Settle::Ack, rest).await,
            "release" => self.settle(Settle::Release, rest).await,
            "longer" => self.renew_work(rest).await,
            "hold" => self.hold_back(rest).await,
            "shown" => self.receipt(ReceiptLevel::Shown, rest).await,
            "acked" => self.receipt(ReceiptLevel::Acked, rest).await,
            "explain" => self.explain(rest).await,
            "counts" => self.counts(rest).await,
            "held" => self.held(rest).await,
            "mentions" => self.mentions(rest).await,
            "age" | "sweep" | "prune" | "count" => self.upkeep(verb, rest).await,
            _ => self.presence(verb, rest).await,
        }
    }

    async fn take(&self, rest: &[&str]) -> String {
        let fields = fields(&rest[2..]);
        let now = LeaseMs(number(&fields, "now", 0) as u64);
        let taker = Taker {
            agent: party(rest[0]),
            now,
            until: now.after(number(&fields, "lease", 10) as u64),
            at: WallMs(i64::try_from(number(&fields, "at", 7)).unwrap()),
            floor: number(&fields, "floor", 0) as u64,
        };
        let limit = PageLimit {
            rows_max: number(&fields, "max", 100),
            bytes_max: number(&fields, "bytes", 100_000),
        };
        let queue = queue(rest[1]);
        let taken = self.storage.queue_take(mesh(1), &queue, taker, limit);
        match taken.await {
            Err(error) => refused(&error),
            Ok(taken) => join(taken.iter().map(|one| {
                let place = one.delivery.history_id;
                format!("{place}#{}*{}", one.fence, one.delivery_count)
            })),
        }
    }

    async fn renew_work(&self, rest: &[&str]) -> String {
        let fields = fields(&rest[2..4]);
        let now = LeaseMs(number(&fields, "now", 0) as u64);
        let taker = Taker {
            agent: party(rest[0]),
            now,
            until: now.after(number(&fields, "lease", 10) as u64),
            at: WallMs(i64::try_from(number(&fields, "at", 7)).unwrap()),
            floor: number(&fields, "floor", 0) as u64,
        };
        let items = rest[4..].iter().map(|text| leased(text)).collect();
        let queue = queue(rest[1]);
        let renewed = self.storage.queue_renew(mesh(1), &queue, taker, items);
        join(renewed.await.unwrap().into_iter().map(verdict))
    }

    async fn hold_back(&self, rest: &[&str]) -> String {
        let items = rest[1..].iter().map(|text| leased(text)).collect();
        let queue = queue(rest[0]);
        let held = self.storage.queue_hold_back(mesh(1), &queue, items).await;
        held.map_or_else(|error| refused(&error), |()| "held".to_owned())
    }

    async fn settle(&self, what: Settle, rest: &[&str]) -> String {
        let items = rest[2..].iter().map(|text| leased(text));
        let settle = (what, items.collect());
        let settled = self
            .storage
            .queue_settle(mesh(1), &queue(rest[1]), &party(rest[0]), settle, AT)
            .await
            .unwrap();
        join(settled.into_iter().map(verdict))
    }

    async fn receipt(&self, level: ReceiptLevel, rest: &[&str]) -> String {
        let at = rest.last().unwrap().strip_prefix("at=").unwrap();
        let items = rest[1..rest.len() - 1].iter().map(|text| {
            let ack = place(text);
            Receipt {
                history_id: ack.history_id,
                agent: ack.agent,
                level,
                at: WallMs(at.parse().unwrap()),
            }
        });
        let changed = self
            .storage
            .receipts(mesh(1), member(rest[0]), items.collect())
            .await;
        changed.unwrap().to_string()
    }

    async fn explain(&self, rest: &[&str]) -> String {
        let id = send_id(&fields(rest));
        let explanation = self.storage.explain(mesh(1), id).await.unwrap();
        explanation.map_or("absent".to_owned(), |one| explained(&one))
    }

    async fn counts(&self, rest: &[&str]) -> String {
        let now = LeaseMs(number(&fields(rest), "now", 0) as u64);
        let counts = self.storage.queue_counts(mesh(1), now).await.unwrap();
        let words = |one: &QueueCount| format!("{}={}/{}", one.queue, one.ready, one.leased);
        join(counts.iter().map(words))
    }

    /// Page by page to the end, each of `max` rows; `|` stands between them.
    async fn held(&self, rest: &[&str]) -> String {
        let limit = PageLimit {
            rows_max: number(&fields(&rest[1..]), "max", 100),
            bytes_max: 100_000,
        };
        let time = |at: Option<WallMs>| at.map_or("-".to_owned(), |at| at.0.to_string());
        let mut pages = Vec::new();
        let mut after = Some((Priority::ALL[0], DeliveryPlace::START));
        while let Some(from) = after {
            let page = self
                .storage
                .deliveries_held(mesh(1), member(rest[0]), from, limit)
                .await
                .unwrap();
            let mut words: Vec<String> = page
                .items
                .iter()
                .map(|held| {
                    let (place, agent) = (held.delivery.history_id, &held.delivery.agent);
                    let (shown, acked) = (held.levels.shown_at, held.levels.acked_at);
                    format!("{place}/{agent}:{},{}", time(shown), time(acked))
                })
                .collect();
            if page.gone > 0 {
                words.push(format!("gone={}", page.gone));
            }
            pages.push(join(words.into_iter()));
            after = page.next;
        }
        pages.join(" | ")
    }

    async fn mentions(&self, rest: &[&str]) -> String {
        let fields = fields(&rest[1..]);
        let after = fields
            .get("after")
            .map_or(HistoryId::ZERO, |text| text.parse().unwrap());
        let places = self
            .storage
            .mentions_after(mesh(1), &party(rest[0]), after, number(&fields, "rows", 9))
            .await
            .unwrap();
        join(places.iter().map(ToString::to_string))
    }

    async fn upkeep(&self, verb: &str, rest: &[&str]) -> String {
        let storage = self.storage;
        let ms = |place: usize| {
            let ms = rest.get(place).map_or(0, |text| text.parse().unwrap());
            Duration::from_millis(ms)
        };
        match verb {
            "age" => {
                let mark = AgeMark {
                    age: ms(0),
                    wall: WallMs(0),
                    boot: None,
                };
                let kept = storage.keep_age(mesh(1), mark, ms(1)).await.unwrap();
                assert_eq!(
                    storage.age(mesh(1)).await.unwrap().map(|mark| mark.age),
                    Some(kept)
                );
                kept.as_millis().to_string()
            }
            "sweep" => storage
                .sweep_expired(mesh(1), ms(0))
                .await
                .unwrap()
                .to_string(),
            "prune" => storage
                .prune_messages(mesh(1), ms(0))
                .await
                .unwrap()
                .to_string(),
            _ => {
                let counted = storage.count_traffic(mesh(1)).await.unwrap();
                let hours = storage.traffic(mesh(1)).await.unwrap();
                let hours = join(hours.iter().map(|(hour, n)| format!("{}={n}", hour.0)));
                format!("{counted}: {hours}")
            }
        }
    }

    async fn presence(&self, verb: &str, rest: &[&str]) -> String {
        let storage = self.storage;
        let number = |index: usize| rest[index].parse::<u64>().unwrap();
        let yes = |done: bool| if done { "yes" } else { "no" }.to_owned();
        match (verb, rest) {
            ("renew", [id, ..]) => {
                let until = LeaseMs(number(2));
                let renewed = storage.renew_session(mesh(1), member(id), number(1), until);
                yes(renewed.await.unwrap())
            }
            ("end", [id, ..]) => {
                let ended = storage.end_session(mesh(1), member(id), number(1), AT);
                yes(ended.await.unwrap())
            }
            ("expire", [_]) => {
                let over = storage.expire_sessions(mesh(1), LeaseMs(number(0)), AT);
                over.await.unwrap().to_string()
            }
            ("present", [_]) => {
                let present = storage.presence(mesh(1), LeaseMs(number(0)));
                join(present.await.unwrap().iter().map(|one| {
                    let sign = if one.is_online { '=' } else { '-' };
                    let since = one.since.map_or("never".to_owned(), |at| at.0.to_string());
                    format!("{}{sign}{since}", name_of(one.member))
                }))
            }
            _ => panic!("no such operation: {verb} {rest:?}"),
        }
    }
}

/// `1.1 to=ops until=2000 counted body a/one:5,7,-` and, for a queue, `leased#1*1 by=a/one`.
fn explained(one: &Explanation) -> String {
    let time = |at: Option<WallMs>| at.map_or("-".to_owned(), |at| at.0.to_string());
    let mut words = vec![
        one.consumed.history_id.to_string(),
        format!("to={}", one.destination_ref),
        format!("until={}", time(one.expires_at)),
        match one.limiter {
            None => "unmetered".to_owned(),
            Some(note) => format!("window={} counted={}", note.window, note.counted),
        },
        if one.consumed.history_available {
            "body"
        } else {
            "pruned"
        }
        .to_owned(),
    ];
    for recipient in &one.recipients {
        let levels = recipient.levels;
        words.push(format!(
            "{}:{},{},{}",
            short(&recipient.party),
            time(levels.delivered_at),
            time(levels.shown_at),
            time(levels.acked_at)
        ));
    }
    if let Some(work) = &one.work {
        let state = format!("{:?}", work.state).to_lowercase();
        words.push(format!("{state}#{}*{}", work.fence, work.delivery_count));
        if let Some((party, name)) = &work.holder {
            words.push(format!("by={}({name})", short(party)));
        }
        words.push(format!("taken={}", time(work.taken_at)));
        words.push(format!("acked={}", time(work.acked_at)));
    }
    words.join(" ")
}
