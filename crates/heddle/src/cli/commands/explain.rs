//! `heddle explain ID`: what became of a send, a change to the data or an effect, in one screen.

mod data;
mod message;

use clap::Args as ClapArgs;
use heddle_wire::ipc::{
    DeliveryView, EffectStory, ExplainView, LimiterView, LostView, MentionView, OutboxRow,
    QueueStateView, Story,
};

use crate::cli::spelled::quoted;
use crate::cli::text::{printable, table};
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The id that a send or a change printed, a row's own id, the broker's id of a message or its place in the
    /// history (1.17), or a key of the data; or an effect's key,
    /// request, registration or attempt (`effect:KEY` where something else has the same id)
    #[arg(allow_hyphen_values = true)]
    id: String,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    if args.id.trim().is_empty() {
        return Err(CliError::new(exit::USAGE, "an empty id names nothing").next(
            "Give the id that the send or the change printed; `heddle daemon outbox list` shows those of sends.",
        ));
    }
    let story = context.client().story(&args.id, &context.scope());
    let story = story.map_err(|error| {
        let command = format!("heddle explain {}", quoted(&args.id));
        CliError::from(error).for_each_sender(&command)
    })?;
    context.print(&story, |story| match story {
        Story::Sent(sent) => describe(context, sent),
        Story::Message(told) => message::describe(context, told),
        Story::Data(data) => data::describe(data),
        Story::Effect(told) => effect(told),
    })?;
    data::refuse_lost(&story)
}

/// An effect's life, one line for each thing that happened to it.
fn effect(story: &EffectStory) -> String {
    let view = &story.effect;
    let mut text = format!(
        "effect {} is {} ({})\n",
        printable(&view.logical_request_key),
        view.status,
        view.state
    );
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name:<10} {}\n", printable(&value)));
    };
    line("what", format!("{} {}", view.operation, view.target));
    if !view.artifact_hash.is_empty() {
        line("artifact", view.artifact_hash.clone());
    }
    if !view.run.is_empty() {
        line("run", view.run.clone());
    }
    if let Some(blocked) = &view.blocked {
        line("now", blocked.clone());
    }
    if story.left_off {
        line("", "(older attempts and refusals are left off)".to_owned());
    }
    let rows: Vec<Vec<String>> = story
        .story
        .iter()
        .map(|event| {
            let rest = [
                event.code.as_str(),
                event.detail.lines().next().unwrap_or(""),
            ];
            let rest: Vec<&str> = rest.into_iter().filter(|word| !word.is_empty()).collect();
            vec![
                event.at.clone(),
                printable(&event.what),
                printable(&event.by),
                printable(&rest.join(" ")),
            ]
        })
        .collect();
    text + &table(&rows)
}

fn describe(context: &Context, story: &ExplainView) -> String {
    let row = &story.outbox;
    let mut text = format!("{}\n", verdict(story));
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name:<10} {}\n", printable(&value)));
    };
    line(
        "message",
        format!("@{} to {}, {}", row.agent, row.to, row.priority),
    );
    line("local", row.enqueued_at.clone());
    for attempt in &story.attempts {
        let detail = match attempt.detail.as_str() {
            "" => String::new(),
            detail => format!(": {detail}"),
        };
        line(
            &format!("try {}", attempt.number),
            format!("{}  {}{detail}", attempt.at, attempt.outcome),
        );
    }
    if let Some(waits_for) = &row.waits_for {
        line("waits for", context.spelled_in(waits_for));
    }
    if let Some(broker) = &story.broker {
        let at = broker.committed_at.as_deref().unwrap_or_default();
        line(
            "committed",
            format!(
                "{at}  as {} at {}",
                broker.broker_message_id, broker.history_id
            ),
        );
        if let Some(words) = story.body_at_broker() {
            line("body", words.to_owned());
        }
        if let Some(queue) = &broker.queue {
            line("queue", queue_words(queue));
        }
    }
    if let Some(lost) = &story.lost {
        let words = lost_words(lost, &quoted(&story.id));
        line("lost", context.spelled_of(&words, row));
    }
    if let Some(limiter) = &story.limiter {
        line("limiter", limiter_words(limiter));
    }
    if let Some(data) = &story.data {
        line("data", data.says.clone());
        for row in &data.rows {
            line(&row.noun, format!("{}, stamp {}", row.key, row.lamport));
        }
        if let Some(next) = &data.next {
            line("helps", next.clone());
        }
    }
    for mention in &story.mentions {
        line("mentions", mention_words(mention));
    }
    text.push_str(&recipients(story));
    text.push_str(&chain(story));
    if let Some((next, about)) = next(story) {
        let next = context.spelled_of(&next, about);
        text.push_str(&format!("  {:<10} {next}\n", "next"));
    }
    text + &freshness(story)
}

/// What is said where the broker was not asked.
fn freshness(story: &ExplainView) -> String {
    if !story.stale {
        return String::new();
    }
    let why = story.stale_why.as_deref().map(printable);
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("  The broker cannot be asked now{why}. This is what this home knows.\n")
}

/// The story in one line.
fn verdict(story: &ExplainView) -> String {
    let row = &story.outbox;
    let id = printable(&story.id);
    match row.status.as_str() {
        "dead" | "aborted" => {
            let mut words = format!("{id} is {}", over_words(story));
            // What the broker says of it is of now; what this home gave up is of then.
            if story
                .broker
                .as_ref()
                .is_some_and(|b| b.first_seen_at.is_some())
            {
                let level = story
                    .level_of_some()
                    .map_or("committed", |(level, _)| level.as_str());
                words.push_str(&format!("; its broker has it all the same, {level}"));
            }
            words
        }
        _ if story.is_dropped() => {
            let at = story.lost.as_ref().map_or("", |lost| lost.at.as_str());
            let words = format!(
                "{id} was dropped by the operator at {at}, after its broker had lost it; it was committed before"
            );
            match story.level_of_some() {
                Some((level, count)) => {
                    format!("{words}; {} for {count} in this home", level.as_str())
                }
                None => words,
            }
        }
        _ if story.is_lost() => match story.level_of_some() {
            // Its recipient has it, whatever the broker has lost.
            Some((level, _)) if row.to.starts_with('@') => format!("{id} is {}", level.as_str()),
            _ => format!(
                "{id} is lost at its broker, an earlier copy of which was put back; it was committed before"
            ),
        },
        _ if story.forgotten => {
            let mut words = format!(
                "{id} was committed; its broker has forgotten the id since, and what became of it"
            );
            if let Some((some, count)) = story.level_of_some() {
                words.push_str(&format!("; {} for {count} in this home", some.as_str()));
            }
            words
        }
        _ => {
            let all = story.level_of_all();
            let mut words = format!("{id} is {}", all.as_str());
            words.extend(story.held_back().map(|(says, _)| format!("; {says}")));
            if let Some((some, count)) = story.level_of_some().filter(|(some, _)| *some > all) {
                let of = match (story.deliveries_left_off, story.deliveries_partial) {
                    (0, false) => format!("of {}", story.deliveries.len()),
                    (0, true) => "of those that this home knows".to_owned(),
                    (more, _) => format!(
                        "of {}",
                        u64::try_from(story.deliveries.len())
                            .unwrap_or(0)
                            .saturating_add(more)
                    ),
                };
                words.push_str(&format!("; {} for {count} {of}", some.as_str()));
            }
            words
        }
    }
}

fn mention_words(mention: &MentionView) -> String {
    let agent = &mention.agent;
    match mention.gets_it {
        Some(true) => format!("{agent}, who is a recipient"),
        Some(false) => format!("{agent}, who is no recipient"),
        None => format!("{agent}; whether it is a recipient is not known yet"),
    }
}

/// Why a row is over, and who said so.
fn over_words(story: &ExplainView) -> String {
    let row = &story.outbox;
    let why = row.last_error.as_deref().map(printable);
    if row.status != "aborted" {
        return format!("{}: {}", row.status, why.unwrap_or_default());
    }
    let at = row.aborted_at.as_deref().unwrap_or("an unknown time");
    let by = row.aborted_by.as_deref().unwrap_or("nobody that is known");
    let before = why.map_or_else(String::new, |why| format!("; before that: {why}"));
    match newest(story) {
        Some(newest) => {
            // At that time; where it went on later is another step of the chain.
            let next = successor(story).unwrap_or(newest);
            let goes_on = if next.id == newest.id {
                String::new()
            } else {
                format!(
                    ", which goes on as {}",
                    printable(&newest.client_message_id)
                )
            };
            format!(
                "aborted: requeued by the {} at {at} as {}{goes_on}{before}",
                printable(by),
                printable(&next.client_message_id)
            )
        }
        None => format!(
            "aborted: retired by the {} at {at}, and nothing goes on with it{before}",
            printable(by)
        ),
    }
}

/// The row that took its place first.
fn successor(story: &ExplainView) -> Option<&OutboxRow> {
    let place = story
        .chain
        .iter()
        .position(|row| row.id == story.outbox.id)?;
    story.chain.get(place + 1)
}

/// The row under whose id a retired one goes on.
fn newest(story: &ExplainView) -> Option<&OutboxRow> {
    let newest = story.chain.last();
    newest.filter(|newest| newest.id != story.outbox.id)
}

/// What makes sense for a row that is over, and the row that its commands are about.
fn next(story: &ExplainView) -> Option<(String, &OutboxRow)> {
    let row = &story.outbox;
    let words = match row.status.as_str() {
        "dead" if story.kind == "op" => Some(format!(
            "`heddle doctor --retry {id}` sends it again, `heddle doctor --drop {id}` gives it up",
            id = quoted(&story.id)
        )),
        "dead" if row.pruned == Some(true) => Some(
            "its text was given back by a prune, so it cannot be requeued: send it anew under a new id, if it is still wanted".to_owned(),
        ),
        "dead" if row.outcome.as_deref() == Some("unknown") => Some(format!(
            "`heddle daemon outbox requeue --id {} --auto` asks its broker whether it arrived. Where nobody can know that any more, look into the inbox that it was for; `--force` then sends it again, and it may arrive twice",
            quoted(&story.id)
        )),
        "dead" => Some(format!(
            "`heddle daemon outbox requeue --id {} --auto` sends it again under a fresh id, unless its broker has it",
            quoted(&story.id)
        )),
        "aborted" if story.kind == "op" => Some(
            "this home keeps the change and the others do not get it; writing the same key again shares it".to_owned(),
        ),
        "aborted" => {
            let Some(newest) = newest(story) else {
                let words = "send it anew under a new id, if it is still wanted; this one stays taken";
                return Some((words.to_owned(), row));
            };
            let words = format!(
                "`heddle explain {}` says what became of it: it goes on under that id",
                quoted(&newest.client_message_id)
            );
            return Some((words, newest));
        }
        _ => story.held_back().map(|(_, next)| next),
    };
    words.map(|words| (words, row))
}

/// What became of a message that the broker had and lost.
fn lost_words(lost: &LostView, id: &str) -> String {
    let what = lost.says();
    let next = match lost.next(id) {
        Some(next) if lost.open && lost.state != "waiting" => format!(". {next}"),
        _ => String::new(),
    };
    format!(
        "its place {} went when an earlier copy of the broker was put back; {what}{next}",
        lost.history_id
    )
}

/// What the limiter said, and how often it said no before.
fn limiter_words(limiter: &LimiterView) -> String {
    let mut words = match (limiter.decision.as_str(), limiter.window) {
        ("waiting", _) => format!(
            "not asked about it yet: {}",
            limiter.detail.as_deref().unwrap_or_default()
        ),
        ("refused", _) | (_, None) => String::new(),
        (_, Some(window)) if limiter.counted => {
            format!("used one of the budget in window {window}")
        }
        (_, Some(window)) => format!("was free in window {window}"),
    };
    if limiter.refused > 0 {
        let at = limiter.last_refused_at.as_deref().unwrap_or_default();
        let detail = limiter.detail.as_deref().unwrap_or_default();
        let times = match limiter.refused {
            1 => "refused once".to_owned(),
            times => format!("refused {times} times"),
        };
        let before = if words.is_empty() { "" } else { "; " };
        words.push_str(&format!("{before}{times}, last at {at}: {detail}"));
    }
    if let Some(until) = &limiter.until {
        words.push_str(&format!(
            "; the mesh waits, and the broker is asked again about {until}"
        ));
    }
    words
}

fn queue_words(queue: &QueueStateView) -> String {
    let holder = queue.holder.as_deref().unwrap_or("nobody");
    let fence = queue.fence;
    let taken = match &queue.taken_at {
        Some(at) => format!(", taken at {at}"),
        None => String::new(),
    };
    let times = match queue.delivery_count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    match (queue.status.as_str(), queue.lease_left_seconds) {
        ("leased", left) => {
            let left = left.unwrap_or(0);
            let until = match &queue.lease_until {
                Some(at) => format!("until {at}, for {left} s more"),
                None => format!("for {left} s more"),
            };
            format!("with {holder} {until}{taken}, fence {fence}, handed out {times}")
        }
        ("acked", _) => {
            let at = queue.acked_at.as_deref().unwrap_or("an unknown time");
            format!("done by {holder} at {at}{taken}, fence {fence}, handed out {times}")
        }
        _ if queue.delivery_count == 0 => "waits; nobody has taken it yet".to_owned(),
        _ => {
            let last = match (&queue.holder, &queue.taken_at) {
                (Some(holder), Some(at)) => format!(", last to {holder} at {at}"),
                (None, Some(at)) => format!(", last at {at}"),
                _ => String::new(),
            };
            format!("waits; handed out {times}{last}, fence {fence}")
        }
    }
}

fn recipients(story: &ExplainView) -> String {
    recipient_table(&story.deliveries, story.deliveries_left_off)
}

fn recipient_table(deliveries: &[DeliveryView], left_off: u64) -> String {
    if deliveries.is_empty() {
        return String::new();
    }
    let cell = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".to_owned());
    let mut rows = vec![
        ["RECIPIENT", "DELIVERED", "SHOWN", "ACKED"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(deliveries.iter().map(|d: &DeliveryView| {
        vec![
            printable(&d.recipient),
            if d.damaged {
                "damaged".to_owned()
            } else {
                cell(&d.delivered_at)
            },
            cell(&d.shown_at),
            cell(&d.acked_at),
        ]
    }));
    let mut text = table(&rows);
    if left_off > 0 {
        text.push_str(&format!("and {left_off} more\n"));
    }
    text
}

fn chain(story: &ExplainView) -> String {
    if story.chain.len() < 2 {
        return String::new();
    }
    let link = |row: &OutboxRow| format!("{} ({})", printable(&row.client_message_id), row.status);
    let links: Vec<String> = story.chain.iter().map(link).collect();
    format!("  {:<10} {}\n", "chain", links.join(" → "))
}
