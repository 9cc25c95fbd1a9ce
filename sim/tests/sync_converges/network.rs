//! What the network does to ops on their way out and in.

use std::time::Duration;

use heddle_broker::Principal;
use heddle_broker::storage::{Log, LogRow, PageLimit, Storage};
use heddle_core::drain::BrokerAnswer;
use heddle_core::names::MemberName;
use heddle_core::sync::op_move;
use heddle_store::{DueOp, NewOp, OpSettle};
use heddle_wire::broker::{Envelope, SendItem, Verdict};
use serde_json::value::RawValue;

use crate::world::{NOW, World};

impl World {
    pub(crate) async fn push(&mut self, at: usize, items_max: usize) -> usize {
        let replica = &self.replicas[at];
        let due = replica
            .store
            .due_ops(self.mesh, Duration::ZERO, items_max, 1 << 20);
        let due = due.await.unwrap();
        if due.is_empty() {
            return 0;
        }
        let head = replica.store.sync_head(self.mesh).await.unwrap();
        let principal = Principal {
            mesh: self.mesh,
            member: replica.party.member,
            member_name: MemberName::parse("m").unwrap(),
        };
        let items = || -> Vec<SendItem> {
            let tag = Some(head.broker_epoch).filter(|epoch| *epoch > 0);
            due.iter().map(|op| item(op, tag)).collect()
        };
        let verdicts = self.gate.accept(&principal, items()).await.verdicts;
        let verdicts = if self.dice.one_in(20) {
            self.faults.sent_twice += 1;
            self.gate.accept(&principal, items()).await.verdicts
        } else {
            verdicts
        };
        if self.dice.one_in(15) {
            self.faults.lost_acks += 1;
            return 0;
        }
        let mut moves = Vec::new();
        for (op, verdict) in due.iter().zip(verdicts) {
            if let Verdict::Refused(refused) = &verdict {
                assert_eq!(refused.code, "epoch_mismatch");
                self.faults.mismatches += 1;
            }
            moves.push(OpSettle {
                arrival: op.arrival,
                row: op.row,
                attempts: op.attempts,
                next: op_move(answer(verdict)),
                begun: NOW,
                at: NOW,
                due: Duration::ZERO,
            });
        }
        let count = moves.len();
        let epoch = self.gate.storage.epoch(self.mesh).await.unwrap();
        let store = &self.replicas[at].store;
        store.hear_epoch(self.mesh, epoch).await.unwrap();
        assert!(!store.settle_ops(self.mesh, moves).await.unwrap());
        count
    }

    /// True if there was something to read.
    pub(crate) async fn pull(&mut self, at: usize, calm: bool) -> bool {
        let store = self.replicas[at].store.clone();
        let head = store.sync_head(self.mesh).await.unwrap();
        let mut after = head.log;
        if !calm && self.dice.one_in(10) && after.seq > 50 {
            self.faults.repeated_pages += 1;
            after.seq -= self.dice.roll(50);
        }
        let limit = PageLimit {
            rows_max: if calm {
                500
            } else {
                1 + usize::try_from(self.dice.roll(200)).unwrap()
            },
            bytes_max: 1 << 20,
        };
        let page = self
            .gate
            .storage
            .log_after(self.mesh, after, limit)
            .await
            .unwrap();
        let mut ops: Vec<NewOp> = page.rows.into_iter().map(new_op).collect();
        if ops.is_empty() {
            return false;
        }
        if !calm && self.dice.one_in(10) {
            self.faults.disordered_pages += 1;
            for index in (1..ops.len()).rev() {
                let other = usize::try_from(self.dice.roll(index as u64 + 1)).unwrap();
                ops.swap(index, other);
            }
        }
        if !calm && self.dice.one_in(12) {
            // A copy of it comes once more, when others have come in between.
            self.faults.late_pages += 1;
            self.replicas[at].late.clone_from(&ops);
        }
        self.receive(at, page.epoch, ops).await;
        if self.dice.one_in(6) {
            let late = std::mem::take(&mut self.replicas[at].late);
            self.receive(at, page.epoch, late).await;
        }
        true
    }

    /// Some pages are kept and applied at once, as a home does; others are kept, and applied some time later.
    async fn receive(&mut self, at: usize, epoch: u64, ops: Vec<NewOp>) {
        let replica = &self.replicas[at];
        let (member, store) = (replica.party.member, &replica.store);
        // Not by the dice: the seeds of past failures play on as they did.
        let received = if ops.len().is_multiple_of(2) {
            let (received, applied) = store
                .take_page(self.mesh, member, epoch, ops, NOW)
                .await
                .unwrap();
            if let Some(applied) = applied {
                assert_eq!(applied.quarantined, 0);
                self.faults.pages_at_once += u64::from(applied.applied > 0);
            }
            received
        } else {
            let received = store.receive_ops(self.mesh, member, epoch, ops, NOW);
            received.await.unwrap()
        };
        assert!(!received.gap, "the log has no gap");
    }

    pub(crate) async fn apply(&self, at: usize, limit: usize) -> bool {
        let applied = self.replicas[at]
            .store
            .apply_ops(self.mesh, limit, NOW)
            .await;
        let applied = applied.unwrap();
        assert_eq!(applied.quarantined, 0);
        applied.more || applied.applied + applied.passed > 0
    }
}

fn item(op: &DueOp, epoch: Option<u64>) -> SendItem {
    SendItem {
        agent: op.agent.clone(),
        client_message_id: op.client_message_id.clone(),
        epoch,
        envelope: RawValue::from_string(String::from_utf8(op.payload.clone()).unwrap()).unwrap(),
    }
}

fn answer(verdict: Verdict) -> BrokerAnswer {
    match verdict {
        Verdict::Created {
            broker_message_id,
            history_id,
            ..
        } => BrokerAnswer::Committed {
            broker_message_id,
            history_id,
            duplicate: false,
            history_available: true,
        },
        Verdict::Duplicate {
            broker_message_id,
            history_id,
            history_available,
            ..
        } => BrokerAnswer::Committed {
            broker_message_id,
            history_id,
            duplicate: true,
            history_available,
        },
        Verdict::Conflict { .. } => panic!("an op id met another op"),
        Verdict::Refused(refused) => BrokerAnswer::Refused {
            code: refused.code,
            detail: refused.detail,
            retry_after: None,
        },
    }
}

fn new_op(row: LogRow) -> NewOp {
    let envelope = Envelope::parse(row.envelope.as_bytes()).unwrap();
    NewOp {
        history_id: row.history_id,
        previous: row.previous,
        sender: row.sender,
        client_message_id: row.client_message_id,
        op: Ok(envelope.body.into_bytes()),
    }
}
