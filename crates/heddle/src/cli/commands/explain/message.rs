//! The story of a message that this home did not send, or of whose send it has no row any more.

use heddle_wire::ipc::{DeliveryView, LayerView, MessageStory};

use super::{limiter_words, queue_words};
use crate::cli::Context;
use crate::cli::text::printable;

pub(super) fn describe(context: &Context, story: &MessageStory) -> String {
    let mut text = format!("{}\n", printable(&story.says));
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name:<10} {}\n", printable(&value)));
    };
    line("mesh", story.mesh.clone());
    let layers = &story.layers;
    line("outbox", layer(&layers.outbox));
    line("broker", layer(&layers.broker));
    line("inbox", layer(&layers.inbox));
    if let Some(broker) = &story.broker {
        let at = match &broker.first_seen_at {
            Some(at) => format!("{at}  "),
            None => String::new(),
        };
        line(
            "committed",
            format!(
                "{at}as {} at {}",
                broker.broker_message_id, broker.history_id
            ),
        );
        if let Some(queue) = &broker.queue {
            line("queue", queue_words(queue));
        }
    }
    if let Some(limiter) = &story.limiter {
        line("limiter", limiter_words(limiter));
    }
    let answers = story.inbox.iter().find_map(|copy| copy.reply_to_id.clone());
    if let Some(reply_to) = answers {
        line("answers", reply_to);
    }
    text.push_str(&recipients(story));
    if let Some(next) = &story.next {
        text.push_str(&format!(
            "  {:<10} `{}` tells the sender's side of it\n",
            "next",
            context.spelled(next)
        ));
    }
    text
}

/// Whether it has rows, in a word, and what that means.
fn layer(layer: &LayerView) -> String {
    let rows = match layer.rows.as_str() {
        "present" => "has it",
        "past" => "had it",
        "not_asked" => "not asked",
        "unreachable" => "cannot be asked now",
        _ => "has nothing",
    };
    format!("{rows}: {}", layer.says)
}

/// The mailboxes of this home, and those that the broker tells of.
fn recipients(story: &MessageStory) -> String {
    let here = story.inbox.iter().map(|copy| DeliveryView {
        recipient: copy.recipient.clone(),
        delivered_at: Some(copy.received_at.clone()),
        shown_at: copy.shown_at.clone(),
        acked_at: copy.acked_at.clone(),
        damaged: copy.damaged,
    });
    let here: Vec<DeliveryView> = here.collect();
    let is_here = |one: &&DeliveryView| here.iter().any(|own| own.recipient == one.recipient);
    let others = story.deliveries.iter().filter(|one| !is_here(one));
    let rows: Vec<DeliveryView> = here.iter().chain(others).cloned().collect();
    super::recipient_table(&rows, story.deliveries_left_off)
}
