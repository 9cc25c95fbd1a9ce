//! The outbox as a plain list, beside the store that must agree with it after every step.

use std::time::Duration;

use heddle_core::clock::Ids;
use heddle_core::drain::RowMove;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, Party, RowId};
use heddle_core::limits::BACKOFF_MS_MIN;
use heddle_core::outbox_status::OutboxStatus::{self, Aborted, Dead, Done, Inflight, Pending};
use heddle_store::{Accepted, Figures, OutboxFilter, Requeue, Requeued, Settle};

use crate::fixture::{Fixture, NOW, agent, at, client_id, dead, print, retry};
use crate::model::Step;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelRow {
    row: RowId,
    sender: Party,
    id: ClientMessageId,
    print: u8,
    status: OutboxStatus,
    attempts: u32,
    last_error: Option<String>,
    due: u64,
    broker_message_id: Option<BrokerMessageId>,
    successor: Option<RowId>,
}

pub(crate) struct Pair {
    pub(crate) fixture: Fixture,
    pub(crate) rows: Vec<ModelRow>,
}

impl Pair {
    fn holder(&self, sender: &Party, id: &ClientMessageId) -> Option<&ModelRow> {
        self.rows
            .iter()
            .find(|row| row.sender == *sender && row.id == *id)
    }

    fn push(&mut self, row: RowId, sender: Party, id: ClientMessageId, print: u8) {
        self.rows.push(ModelRow {
            row,
            sender,
            id,
            print,
            status: Pending,
            attempts: 0,
            last_error: None,
            due: 0,
            broker_message_id: None,
            successor: None,
        });
    }

    pub(crate) async fn run(&mut self, step: Step) {
        match step {
            Step::Accept {
                agent: name,
                id,
                print,
                refused,
            } => {
                let sender = self.fixture.party(["planner", "coder"][usize::from(name)]);
                let id = client_id(&format!("id-{id}"));
                self.accept(sender, id, print, refused).await;
            }
            Step::Take {
                now,
                items_max,
                bytes_max,
            } => self.take(now, items_max, bytes_max).await,
            Step::TakeOne { row } => self.take_one(row).await,
            Step::Settle { row, verdict, due } => self.settle(row, verdict, due).await,
            Step::Requeue { row, id } => self.requeue(row, id).await,
            Step::Recover => self.recover().await,
        }
        self.compare().await;
    }

    async fn accept(&mut self, sender: Party, id: ClientMessageId, byte: u8, refused: bool) {
        let mut key = self.fixture.key(id.as_str(), byte);
        key.sender.agent = agent(sender.agent.as_str());
        let new = self.fixture.new_row();
        let row = new.row;
        let fresh = if refused { Err("no") } else { Ok(new) };
        let accepted = self.fixture.store.accept(key, fresh).await.unwrap();
        match self.holder(&sender, &id) {
            Some(held) => {
                let Accepted::Known {
                    decision,
                    row: found,
                    ..
                } = accepted
                else {
                    panic!("{accepted:?} for {held:?}");
                };
                let compared = if held.print == byte {
                    "match"
                } else {
                    "mismatch"
                };
                assert_eq!(found.row, held.row);
                assert_eq!(
                    decision.name,
                    format!("{}_{compared}", held.status.as_str())
                );
            }
            None if refused => assert_eq!(accepted, Accepted::Refused("no")),
            None => {
                assert_eq!(accepted, Accepted::Inserted { row });
                self.push(row, sender, id, byte);
            }
        }
    }

    async fn take(&mut self, now: u64, items_max: usize, bytes_max: usize) {
        let due = self.fixture.store.take_due(
            self.fixture.mesh,
            Duration::from_millis(now),
            items_max,
            bytes_max,
        );
        let taken: Vec<RowId> = due.await.unwrap().iter().map(|due| due.row).collect();
        let mut expected: Vec<&mut ModelRow> = self
            .rows
            .iter_mut()
            .filter(|row| row.status == Pending && row.due <= now)
            .collect();
        // Stable: rows that are due together stay in order of arrival. Payloads have five bytes.
        expected.sort_by_key(|row| row.due);
        expected.truncate(items_max.min((bytes_max / 5).max(1)));
        let rows: Vec<RowId> = expected.iter().map(|row| row.row).collect();
        assert_eq!(taken, rows);
        for row in expected {
            row.status = Inflight;
        }
    }

    async fn take_one(&mut self, index: usize) {
        let Some(row) = self.rows.get_mut(index) else {
            return;
        };
        let taken = self.fixture.store.take_one(row.row).await.unwrap();
        assert_eq!(taken.is_some(), row.status == Pending);
        if row.status == Pending {
            row.status = Inflight;
        }
    }

    async fn settle(&mut self, index: usize, verdict: u8, due: u64) {
        let broker_message_id = BrokerMessageId(self.fixture.ids.ulid());
        let next = match verdict {
            0 => RowMove::Done {
                broker_message_id,
                history_id: at(1, 7),
            },
            1 => dead("no"),
            _ => retry("later"),
        };
        let Some(row) = self.rows.get_mut(index) else {
            return;
        };
        let settle = Settle {
            row: row.row,
            attempts: row.attempts,
            next,
            begun: NOW,
            at: NOW,
            due: Duration::from_millis(due),
        };
        self.fixture.store.settle(vec![settle]).await.unwrap();
        if row.status != Inflight {
            return;
        }
        row.attempts += 1;
        (row.status, row.last_error) = match verdict {
            0 => (Done, None),
            1 => (Dead, Some("no".to_owned())),
            _ => (Pending, Some("later".to_owned())),
        };
        row.broker_message_id = (verdict == 0).then_some(broker_message_id);
        if verdict > 1 {
            row.due = due;
        }
    }

    async fn requeue(&mut self, index: usize, id: u8) {
        let Some(old) = self.rows.get(index).cloned() else {
            return;
        };
        let id = client_id(&format!("id-{id}"));
        let requeue: Requeue = self.fixture.requeue_of(old.row, id.as_str());
        let successor = requeue.new.row;
        let requeued = self.fixture.store.requeue(requeue).await.unwrap();
        if !matches!(old.status, Pending | Dead) {
            assert_eq!(requeued, Requeued::NotRequeueable(old.status));
        } else if self.holder(&old.sender, &id).is_some() {
            assert_eq!(requeued, Requeued::IdTaken);
        } else {
            assert!(matches!(requeued, Requeued::Done { .. }), "{requeued:?}");
            self.rows[index].status = Aborted;
            self.rows[index].successor = Some(successor);
            self.push(successor, old.sender, id, 1);
        }
    }

    async fn recover(&mut self) {
        let recovered = self.fixture.store.recover(NOW).await.unwrap();
        let mut expected = 0;
        for row in &mut self.rows {
            match row.status {
                Inflight => {
                    expected += 1;
                    row.status = Pending;
                    row.attempts += 1;
                    row.due = BACKOFF_MS_MIN;
                }
                Pending if row.due != BACKOFF_MS_MIN => row.due = 0,
                _ => {}
            }
        }
        assert_eq!(recovered, expected);
    }

    async fn compare(&self) {
        let filter = OutboxFilter {
            status: None,
            mesh: None,
            before: None,
            limit: 1000,
        };
        let page = self.fixture.store.outbox_page(filter).await.unwrap();
        assert_eq!(page.rows.len(), self.rows.len());
        for ((row, model), arrival) in page.rows.iter().rev().zip(&self.rows).zip(1..) {
            let seen = ModelRow {
                row: row.row,
                sender: row.sender.clone(),
                id: row.client_message_id.clone(),
                print: row.request_fingerprint.0[0],
                status: row.status,
                attempts: row.attempts,
                last_error: row.last_error.clone(),
                // Not part of a row as it is read; `take` and `next_due` show it.
                due: model.due,
                broker_message_id: row.broker_message_id,
                successor: row.superseded_by,
            };
            assert_eq!(&seen, model);
            assert_eq!(row.arrival, arrival);
            assert_eq!(row.request_fingerprint, print(model.print));
        }
        let waiting = self.rows.iter().filter(|row| row.status == Pending);
        let due = waiting.map(|row| Duration::from_millis(row.due)).min();
        let next = self
            .fixture
            .store
            .next_due(self.fixture.mesh)
            .await
            .unwrap();
        assert_eq!(next, due);
        let count = |status| self.rows.iter().filter(|row| row.status == status).count() as u64;
        let figures = Figures {
            pending: count(Pending),
            inflight: count(Inflight),
            done: count(Done),
            dead: count(Dead),
            aborted: count(Aborted),
            inbox: 0,
            unread: 0,
        };
        assert_eq!(self.fixture.store.figures().await.unwrap(), figures);
    }
}
