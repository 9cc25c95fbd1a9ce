//! Every row of the oracle as a line of text, for comparison.

use heddle_core::ids::MeshId;

use super::tables::Tables;

impl Tables {
    pub(super) fn dump(&self, mesh: MeshId) -> Vec<String> {
        let mut lines = vec![format!(
            "mesh {mesh} {} {} {}",
            self.name, self.epoch, self.next_seq
        )];
        for (member, row) in &self.members {
            lines.push(format!(
                "member {mesh} {member} {} {}",
                row.name, row.generation
            ));
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
        lines.extend(self.dump_messages(mesh));
        lines
    }

    fn dump_messages(&self, mesh: MeshId) -> Vec<String> {
        let mut lines = Vec::new();
        for ((sender, id), row) in &self.dedupe {
            let message = &self.messages[&row.broker_message_id];
            lines.push(format!(
                "dedupe {mesh} {sender} {id} {} {} {} {} {} {} {} {}",
                row.wire_fingerprint.to_hex(),
                row.broker_message_id,
                row.history_id,
                message.destination.kind().as_str(),
                message.destination,
                row.first_seen_at.0,
                message.expires_at.map_or(-1, |at| at.0),
                u8::from(row.history_available),
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
        for (place, id) in &self.history {
            lines.push(format!("history {mesh} {place} {id}"));
        }
        for (member, rows) in &self.deliveries {
            for (row, acked_at) in rows {
                lines.push(format!(
                    "delivery {mesh} {member}/{} {} {} {}",
                    row.agent,
                    row.history_id,
                    self.history[&row.history_id],
                    acked_at.map_or(-1, |at| at.0),
                ));
            }
        }
        for (party, place) in &self.mentions {
            lines.push(format!("mention {mesh} {party} {place}"));
        }
        lines
    }
}
