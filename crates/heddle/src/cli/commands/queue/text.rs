//! What a person sees of a queue. Bodies are written by others and shown, never obeyed.

use heddle_wire::ipc::{QueueItem, QueueList, QueueTaken};

use crate::cli::Context;
use crate::cli::text::{compact, indented, printable, table};

pub(super) fn taken(context: &Context, queue: &str, taken: &QueueTaken) -> String {
    if !taken.exists {
        return context.spelled_in(&format!(
            "there is no queue:{queue} yet; `heddle queue push {queue} TEXT` makes it, `heddle queue list` shows those that exist\n"
        ));
    }
    if taken.items.is_empty() {
        return format!("nothing waits in queue:{queue}\n");
    }
    let items = taken.items.iter();
    items.map(|item| describe(context, queue, item)).collect()
}

fn describe(context: &Context, queue: &str, item: &QueueItem) -> String {
    let mut head = format!("{}  {} → queue:{queue}", item.id, item.from);
    match item.priority.as_str() {
        "next" => {}
        "now" => head.push_str("  [NOW]"),
        other => head.push_str(&format!("  [{other}]")),
    }
    if let Some(reply_to) = &item.reply_to_id {
        head.push_str(&format!("  re {reply_to}"));
    }
    head.push_str(&format!("  yours for {} s", item.lease_seconds));
    if item.delivery_count > 1 {
        // Somebody may have done half of it.
        head.push_str(&format!("  delivery {}", item.delivery_count));
    }
    let mut text = format!("{}\n{}", printable(&head), indented(&item.body, 4));
    if let Some(meta) = compact(&item.meta) {
        text.push_str(&indented(&format!("meta {meta}"), 4));
    }
    let (id, fence) = (&item.id, item.fence);
    // Whoever settles must name agent and mesh again.
    for (label, command) in [
        (
            "done:",
            format!("heddle queue ack {queue} {id} --fence {fence}"),
        ),
        (
            "longer:",
            format!("heddle queue renew {queue} {id} --fence {fence}"),
        ),
        (
            "give back:",
            format!("heddle queue release {queue} {id} --fence {fence}"),
        ),
    ] {
        text.push_str(&format!("  {label:<10} {}\n", context.spelled(&command)));
    }
    text
}

pub(super) fn list(list: &QueueList) -> String {
    if list.queues.is_empty() && !list.stale {
        return "no queues yet; `heddle queue push NAME TEXT` makes one\n".to_owned();
    }
    let head = ["QUEUE", "MESH", "READY", "LEASED"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let figure = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |n| n.to_string());
    for queue in &list.queues {
        rows.push(vec![
            format!("queue:{}", queue.queue),
            queue.mesh.clone(),
            figure(queue.ready),
            figure(queue.leased),
        ]);
    }
    let mut text = table(&rows);
    if list.stale {
        text.push_str(&format!(
            "(as of {}: the broker is out of reach)\n",
            list.as_of.as_deref().unwrap_or("an unknown time")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn work_shows_its_lease_its_past_and_how_to_settle_it() {
        let item = QueueItem {
            id: "1.7".to_owned(),
            client_message_id: "c".to_owned(),
            broker_message_id: "b".to_owned(),
            history_id: "1.7".to_owned(),
            mesh: "home".to_owned(),
            queue: "builds".to_owned(),
            agent: "coder".to_owned(),
            from: "@ann/planner".to_owned(),
            body: "build\nthe\u{1b}[31m parser".to_owned(),
            priority: "now".to_owned(),
            meta: json!({"ticket": 12}),
            reply_to_id: Some("q-1".to_owned()),
            fence: 4,
            lease_seconds: 300,
            delivery_count: 2,
        };
        let taken_one = QueueTaken {
            duplicate: false,
            items: vec![item],
            exists: true,
        };
        let environment = crate::env::Environment {
            home: Some("/h".into()),
            ..crate::env::Environment::default()
        };
        let agent = Some("coder".to_owned());
        let context = Context::new(environment, false, None, agent, None).unwrap();
        insta::assert_snapshot!(taken(&context, "builds", &taken_one), @r#"
        1.7  @ann/planner → queue:builds  [NOW]  re q-1  yours for 300 s  delivery 2
            build
            the\u{1b}[31m parser
            meta {"ticket":12}
          done:      heddle queue ack builds 1.7 --fence 4 --agent coder
          longer:    heddle queue renew builds 1.7 --fence 4 --agent coder
          give back: heddle queue release builds 1.7 --fence 4 --agent coder
        "#);
    }
}
