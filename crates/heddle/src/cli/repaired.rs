//! What a repair has done, in words: what was lost, what comes back by itself, and what to look at first.

use heddle_daemon::upkeep::BROKER_BEYOND;
use heddle_wire::ipc::{KeptTable, RepairView};

use super::text;

/// What a table holds. Of tables that are not here nobody has heard, and nobody misses them: their name will do.
const HOLDS: [(&str, &str); 29] = [
    (
        "outbox",
        "messages and changes that were sent or wait to be sent",
    ),
    ("outbox_lost", "notes of what a broker has lost"),
    ("outbox_attempt", "the tries of messages that wait"),
    ("outbox_birth", "since when messages wait"),
    ("inbox", "received messages"),
    ("inbox_past", "ids of received messages of the past"),
    ("inbox_session", "how far agents have read"),
    ("inbox_receipt", "receipts of messages"),
    ("inbox_hook", "hooks that were still to run"),
    ("delivery", "how far the brokers have delivered"),
    ("mesh", "meshes"),
    ("agent", "agents"),
    ("roster", "members of meshes"),
    ("invite_key", "invitations"),
    ("lamport_clock", "clocks of meshes"),
    ("memory", "memories"),
    ("state_kv", "values of state"),
    ("applied_request", "idempotency keys of changes"),
    ("task_op", "the history of tasks"),
    ("tasks", "tasks"),
    ("task_blocker", "what tasks wait for"),
    ("task_claim_events", "the record of claims"),
    ("task_lease", "leases of claims"),
    ("warning", "warnings to agents"),
    ("op_outbox", "changes that wait to be synced"),
    ("op_inbox", "changes that came by sync"),
    ("files", "shared files"),
    ("vector_models", "models of vectors"),
    ("vector_metadata", "texts of vectors"),
];

fn holds(table: &str) -> &str {
    if table.starts_with("vectors_") {
        return "vectors";
    }
    let found = HOLDS.iter().find(|(name, _)| *name == table);
    found.map_or("notes of the daemon", |(_, holds)| holds)
}

pub(super) fn in_words(view: &RepairView) -> String {
    let files = files(view) + &logs(view);
    if !view.repaired {
        return match &view.broker_damaged {
            None if !files.is_empty() => {
                format!("nothing is wrong with data.db\n{files}  next: heddle up\n")
            }
            None => "nothing is wrong with data.db; nothing was changed\n".to_owned(),
            Some(damaged) => format!("{}{files}  next: heddle up\n", broker_words(damaged)),
        };
    }
    let broker = view.broker_damaged.as_deref().map(broker_words);
    let beyond = view.broker_beyond.as_deref().map(|why| {
        let why = text::printable(why);
        format!("  ! broker.db is damaged as well, and a repair cannot mend it: {why}\n    {BROKER_BEYOND}\n")
    });
    broker.unwrap_or_default() + &files + &of_store(view) + &beyond.unwrap_or_default()
}

/// Of shared files whose bytes are wanted again.
fn files(view: &RepairView) -> String {
    if view.files_wanted.is_empty() {
        return String::new();
    }
    format!(
        "  the bytes of these shared files were gone or not what was shared, and are fetched again from a member who has \
         them; what is your own and nobody else has, share again: {}\n",
        titles(&view.files_wanted)
    )
}

/// Of what was committed and is in no file any more.
fn logs(view: &RepairView) -> String {
    let mut words = String::new();
    for lost in &view.logs_lost {
        let next = if lost.contains("effects.db") {
            "Which effects were decided last is not known any more: run none of them again before `heddle status` has said what helps"
        } else {
            "What others have comes back by itself; look at what you said last, and say it again under the same ids"
        };
        words.push_str(&format!("  ! {}. {next}\n", text::printable(lost)));
    }
    words
}

/// Of the broker's file, everything behind its header came along.
fn broker_words(damaged: &str) -> String {
    format!(
        "broker.db had a damaged header or list of free pages and is mended, with everything that was in it\n  the damaged \
         file lies at {}: move it away when you have looked at it\n",
        text::printable(damaged)
    )
}

fn what_was_wrong(view: &RepairView) -> String {
    match &view.step_refused {
        Some(why) => format!(
            "a step of the schema of data.db was refused; the rows are in a fresh file, without what was in its way\n  {}\n",
            text::printable(why)
        ),
        None => "data.db was damaged; what could be read is in a fresh file\n".to_owned(),
    }
}

fn of_store(view: &RepairView) -> String {
    let mut words = what_was_wrong(view);
    let is_lost = |table: &&KeptTable| table.refused + table.gaps > 0;
    let lost: Vec<&KeptTable> = view.tables.iter().filter(is_lost).collect();
    for table in &lost {
        words.push_str(&format!(
            "  ! {} ({}): {} saved; {} could not be taken, {} stretches could not be read\n",
            holds(&table.table),
            table.table,
            table.rows,
            table.refused,
            table.gaps
        ));
    }
    if view.relisted {
        words.push_str("  the list of tables could not be read; they were found by their places\n");
    }
    if view.meshes_made > 0 {
        words.push_str(&format!(
            "  {} meshes were lost and made again from what the other rows and config.toml say\n",
            view.meshes_made
        ));
    }
    for left in &view.meshes_left {
        words.push_str(&format!(
            "  ! {}; neither config.toml nor the rows say what it was called and who we were there. Put its [[mesh]] back into config.toml and repair again, or put a backup back with `heddle daemon restore FILE`\n",
            text::printable(left)
        ));
    }
    if !view.mended.is_empty() {
        words.push_str(&format!(
            "  a cell of these could not be read; it was made anew from what else is known, or has a word in its place: {}\n",
            titles(&view.mended)
        ));
    }
    if !view.unreadable.is_empty() {
        words.push_str(&format!(
            "  ! nobody could read these, so they were taken out; the damaged file has them: {}\n",
            titles(&view.unreadable)
        ));
    }
    rows(view, &mut words);
    if view.lost {
        let names: Vec<&str> = lost.iter().map(|table| table.table.as_str()).collect();
        consequences(&names, &mut words);
    } else {
        words.push_str("  no row was lost\n");
    }
    if let Some(damaged) = &view.damaged {
        words.push_str(&format!(
            "  the {} file lies at {}\n",
            if view.step_refused.is_some() {
                "old"
            } else {
                "damaged"
            },
            text::printable(damaged)
        ));
    }
    for why in &view.unmended {
        words.push_str(&format!(
            "  ! the home does not start with it: {}\n",
            text::printable(why)
        ));
    }
    if view.broker_beyond.is_none() && view.unmended.is_empty() {
        words.push_str("  next: heddle up\n");
    }
    words
}

/// Of rows and their models, by name.
fn rows(view: &RepairView, words: &mut String) {
    gone(view, words);
    nameless(view, words);
    tasks(view, words);
}

/// Of rows that were gone as a whole.
fn gone(view: &RepairView, words: &mut String) {
    let lines = [
        (
            &view.sent,
            "changes of this home were never sent to the others, and go out now",
        ),
        (
            &view.brought_back,
            "rows were gone, and are back as the outbox had them",
        ),
        (
            &view.from_log,
            "rows of shared meshes were gone; each comes back when the log of its mesh is read again, if it ever got there",
        ),
        (
            &view.gone,
            "! rows were gone, and nothing in this home has them: write them again under new ids, or look into a backup",
        ),
    ];
    for (names, what) in lines {
        if !names.is_empty() {
            words.push_str(&format!("  {what}: {}\n", plain(names)));
        }
    }
    if view.outbox_gone > 0 {
        words.push_str(&format!(
            "  ! {} rows were gone from the outbox: a message among them may not have been sent; whoever sent one lately sends it again under the same id, and it arrives once\n",
            view.outbox_gone
        ));
    }
}

/// Models of vectors whose names are lost.
fn nameless(view: &RepairView, words: &mut String) {
    for model in &view.nameless_models {
        let model = text::printable(model);
        words.push_str(&format!(
            "  ! nobody can say any more what the model {model} of vectors was called; all of them are there. Searching or storing with that model \
             named in full brings its name back, and so does a repair once config.toml names it under [vectors]; \
             `heddle advanced re-embed --from {model} --to MODEL` moves them to another one\n"
        ));
    }
}

/// Names that say where they begin and end.
fn plain(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().map(|name| text::printable(name)).collect();
    shown.join(", ")
}

fn tasks(view: &RepairView, words: &mut String) {
    if view.tasks_restated > 0 {
        words.push_str(&format!(
            "  {} tasks lost steps of their history and stand as they stood, with the same holders and ends: {}\n",
            view.tasks_restated,
            titles(&view.tasks_restated_titles)
        ));
    }
    if view.tasks_from_log > 0 {
        words.push_str(&format!(
            "  {} tasks of shared meshes were taken out; each comes back when the log of its mesh is read again, if it ever got there\n",
            view.tasks_from_log
        ));
    }
    if view.tasks_dropped > 0 {
        words.push_str(&format!(
            "  ! {} tasks are gone, too little was left of them: {}\n",
            view.tasks_dropped,
            titles(&view.tasks_dropped_titles)
        ));
    }
    if !view.tasks_stuck.is_empty() {
        words.push_str(&format!(
            "  ! these wait for a task that is lost; `heddle task cancel ID` and make them again: {}\n",
            titles(&view.tasks_stuck)
        ));
    }
}

fn titles(titles: &[String]) -> String {
    let shown: Vec<String> = titles
        .iter()
        .map(|title| format!("{:?}", text::printable(title)))
        .collect();
    shown.join(", ")
}

/// What follows from it; each is said where it is true.
fn consequences(lost: &[&str], words: &mut String) {
    words.push_str(
        "  what comes back: unread messages that the broker still holds, and what the others of a shared mesh have (by sync)\n  what does not: rows named above that only this file had\n",
    );
    if lost.contains(&"outbox") {
        words.push_str(
            "  a message that had reached its broker is known there: sent again under the same id it arrives once; one that had not is lost: look with the receiver, and send it again under the same id\n",
        );
    }
    if lost.contains(&"applied_request") {
        words.push_str(
            "  an idempotency key that was lost is free again: the same call under it may be done a second time; look first whether its change is there\n",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(tables: &[&str]) -> RepairView {
        let one = |table: &&str| KeptTable {
            table: (*table).to_owned(),
            rows: 3,
            refused: 0,
            gaps: 1,
        };
        RepairView {
            repaired: true,
            lost: !tables.is_empty(),
            tables: tables.iter().map(one).collect(),
            ..RepairView::default()
        }
    }

    #[test]
    fn a_lost_key_is_not_said_to_be_known_and_every_loss_has_words() {
        let words = in_words(&view(&["applied_request", "state_kv"]));
        assert!(words.contains("may be done a second time"), "{words}");
        assert!(!words.contains("known"), "{words}");
        assert!(words.contains("values of state (state_kv)"), "{words}");
        let words = in_words(&view(&["outbox"]));
        assert!(!words.contains("second time"), "{words}");
        assert!(words.contains("had reached its broker is known"), "{words}");
        assert!(in_words(&view(&[])).contains("no row was lost"));
        let mut locked_out = view(&[]);
        assert!(in_words(&locked_out).contains("next: heddle up"));
        locked_out.unmended = vec!["table mesh names nobody".to_owned()];
        let words = in_words(&locked_out);
        assert!(!words.contains("heddle up"), "{words}");
        assert!(
            words.contains("does not start with it: table mesh"),
            "{words}"
        );
    }

    #[test]
    fn tasks_that_are_gone_are_named() {
        let mut lost = view(&["task_op"]);
        lost.tasks_dropped = 1;
        lost.tasks_dropped_titles = vec!["write \u{1b}[31mit".to_owned()];
        let words = in_words(&lost);
        assert!(
            words.contains("1 tasks are gone") && words.contains("write "),
            "{words}"
        );
        assert!(!words.contains('\u{1b}'), "{words}");
    }
}
