//! Every row of the oracle as a line of text, for comparison.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;

use super::tables::Tables;

impl Tables {
    pub(super) fn dump(&self, mesh: MeshId) -> Vec<String> {
        let mut lines = vec![format!(
            "mesh {mesh} {} {} {} {}",
            self.name, self.epoch, self.next_seq, self.lease_time.0
        )];
        for (member, row) in &self.members {
            lines.push(format!(
                "member {mesh} {member} {} {} {}",
                row.name,
                row.generation,
                row.seen_at.map_or(-1, |at| at.0),
            ));
            for (generation, session) in &row.sessions {
                lines.push(format!(
                    "session {mesh} {member} {generation} {} {}",
                    session.since.0, session.until.0,
                ));
            }
        }
        for agent in &self.agents {
            lines.push(format!("agent {mesh} {agent}"));
        }
        for (topic, subscribers) in &self.topics {
            lines.push(format!("topic {mesh} {topic}"));
            for agent in subscribers {
                lines.push(format!("subscription {mesh} {topic} {agent}"));
            }
        }
        for ((peer, member), granted) in &self.grants {
            let (dm, topic) = (u8::from(granted.dm), u8::from(granted.topic));
            lines.push(format!("grant {mesh} {peer} {member} {dm} {topic}"));
        }
        for (at, member) in &self.withheld {
            lines.push(format!("withheld {mesh} {at} {member}"));
        }
        for (at, previous) in &self.log {
            lines.push(format!("log {mesh} {at} {previous}"));
        }
        lines.extend(self.dump_messages(mesh));
        lines.extend(self.dump_book(mesh));
        lines
    }

    fn dump_book(&self, mesh: MeshId) -> Vec<String> {
        let mut lines = Vec::new();
        for (member, row) in &self.book.standings {
            let invite = row
                .invite
                .map_or_else(|| "-".to_owned(), |id| id.to_string());
            lines.push(format!(
                "standing {mesh} {member} {} {} {invite} {} {}",
                row.role.as_str(),
                row.enrolled_at.0,
                row.revoked_at.map_or(-1, |at| at.0),
                row.blocked_at.map_or(-1, |at| at.0),
            ));
        }
        for (key, row) in &self.book.keys {
            let retired_at = row.retired_at.map_or(-1, |at| at.0);
            lines.push(format!(
                "key {mesh} {key} {} {} {retired_at}",
                row.member, row.added_at.0
            ));
        }
        for (invite, row) in &self.book.invites {
            let new = &row.new;
            lines.push(format!(
                "invite {mesh} {invite} {} {} {} {} {} {} {}",
                heddle_core::fingerprint::hex(&new.digest),
                new.inviter,
                new.role.as_str(),
                new.uses_max,
                row.used,
                new.created_at.0,
                new.expires_at.0,
            ));
        }
        lines
    }

    fn dump_messages(&self, mesh: MeshId) -> Vec<String> {
        let mut lines = Vec::new();
        for ((sender, id), row) in &self.dedupe {
            let consumed = &row.consumed;
            lines.push(format!(
                "dedupe {mesh} {sender} {id} {} {} {} {} {} {} {} {} {} {}",
                consumed.wire_fingerprint.to_hex(),
                consumed.broker_message_id,
                consumed.history_id,
                row.destination.kind().as_str(),
                row.destination,
                consumed.first_seen_at.0,
                row.expires_at.map_or(-1, |at| at.0),
                u8::from(consumed.history_available),
                row.limiter
                    .map_or("-1".to_owned(), |note| note.window.to_string()),
                row.limiter.map_or(-1, |note| i8::from(note.counted)),
            ));
        }
        for (id, message) in &self.messages {
            lines.push(format!(
                "message {mesh} {id} {} {} {} {} {} {} {}",
                message.id.sender,
                message.sender_name,
                message.id.client_message_id,
                message.destination.kind().as_str(),
                message.destination,
                message.accepted_at.0,
                message.envelope,
            ));
        }
        for (at, place) in &self.history {
            let (id, is_expired) = (place.broker_message_id, u8::from(place.is_expired));
            lines.push(format!("history {mesh} {at} {id} {is_expired}"));
        }
        for (member, rows) in &self.deliveries {
            for (ack, row) in rows {
                lines.push(format!(
                    "delivery {mesh} {member}/{} {} {} {} {} {} {}",
                    ack.agent,
                    ack.history_id,
                    row.priority.rank(),
                    self.history[&ack.history_id].broker_message_id,
                    shown(row.levels.delivered_at),
                    shown(row.levels.shown_at),
                    shown(row.levels.acked_at),
                ));
            }
        }
        self.dump_queues(mesh, &mut lines);
        for (party, place) in &self.mentions {
            lines.push(format!("mention {mesh} {party} {place}"));
        }
        lines
    }

    fn dump_queues(&self, mesh: MeshId, lines: &mut Vec<String>) {
        for (name, queue) in &self.queues {
            lines.push(format!("queue {mesh} {name} {}", queue.fence));
            for (at, work) in &queue.items {
                lines.push(format!(
                    "work {mesh} {name} {at} {} {} {} {} {} {} {}",
                    work.priority.rank(),
                    work.fence,
                    work.delivery_count,
                    work.holder
                        .as_ref()
                        .map_or("-".to_owned(), ToString::to_string),
                    work.leased_until
                        .map_or("-1".to_owned(), |until| until.0.to_string()),
                    shown(work.acked_at),
                    shown(work.taken_at),
                ));
            }
        }
    }
}

/// A time, or that there is none.
fn shown(at: Option<WallMs>) -> i64 {
    at.map_or(-1, |at| at.0)
}
