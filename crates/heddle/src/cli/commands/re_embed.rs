//! `heddle advanced re-embed --to MODEL`: moves this home's vectors to another model, step by step.
//!
//! Every step is on disk when it is answered. Whatever ends this verb in the middle, the same command goes on with the
//! rest, and says what had been moved before.

use clap::Args as ClapArgs;
use heddle_core::error_code::ErrorCode;
use heddle_wire::ipc::{ReEmbedAnswer, ReEmbedBody};

use super::remember::again;
use crate::cli::{CliError, Context, exit, ui};

const BAR_CELLS: u64 = 24;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The model to move to: one that this home's provider makes, or heddle-hash-v1
    #[arg(long, value_name = "MODEL")]
    to: String,
    /// Move only the vectors of this model; all other models' by default
    #[arg(long, value_name = "MODEL")]
    from: Option<String>,
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    let client = context.client();
    let mut body = ReEmbedBody {
        to: args.to.clone(),
        from: args.from.clone(),
        cursor: None,
        mesh: context.mesh.clone(),
    };
    let mut run = ReEmbedAnswer::default();
    loop {
        // A step whose answer was lost has moved what it has moved; the next one finds the rest.
        let step = again(|| client.re_embed(&body)).map_err(|error| {
            ui::progress_done();
            stopped(error.into(), &run)
        })?;
        run = behind(run, step);
        ui::progress(&bar(&run));
        if run.cursor.is_none() {
            ui::progress_done();
            return context.print(&run, text);
        }
        body.cursor.clone_from(&run.cursor);
    }
}

/// The run as it stands with one step more.
fn behind(run: ReEmbedAnswer, mut step: ReEmbedAnswer) -> ReEmbedAnswer {
    step.moved += run.moved;
    step.skipped += run.skipped;
    step.without_text += run.without_text;
    step.left_out.extend(run.left_out);
    step.left_out.sort();
    step.left_out.dedup();
    step
}

/// Of all that are to be there in the end: a run that goes on where another was killed begins there.
fn bar(run: &ReEmbedAnswer) -> String {
    let all = run.there + run.left;
    let cells = (run.there * BAR_CELLS)
        .checked_div(all)
        .unwrap_or(BAR_CELLS);
    let done = "#".repeat(usize::try_from(cells).unwrap_or(0));
    let rest = ".".repeat(usize::try_from(BAR_CELLS - cells).unwrap_or(0));
    format!("re-embedding [{done}{rest}] {} of {all}", run.there)
}

/// An end in the middle, with what was done until then.
fn stopped(mut error: CliError, run: &ReEmbedAnswer) -> CliError {
    if run.model.is_empty() {
        let is_lost = error.problem.is_none() && error.code == exit::UNREACHABLE;
        return if is_lost { unanswered(error) } else { error };
    }
    // What the step that failed has moved is not known here; it is found there by the next run.
    error.message = format!(
        "{}; when the daemon answered last, {} moved, for good, and {} were left",
        error.message,
        match run.moved {
            1 => "1 vector was".to_owned(),
            moved => format!("{moved} vectors were"),
        },
        run.left
    );
    // The words for a single change would say that nothing was changed, and to send it under its id again.
    let next = if error.is(ErrorCode::EmbeddingFailed) {
        "See to the provider, or to [vectors] in config.toml.".to_owned()
    } else {
        error.next.unwrap_or_default()
    };
    let next = format!("{next} Then run the same command again: it goes on with the rest.");
    error.next = Some(next.trim_start().to_owned());
    if let Some(problem) = &mut error.problem {
        problem.extra.insert("moved".to_owned(), run.moved.into());
        problem.extra.insert("left".to_owned(), run.left.into());
    }
    error
}

/// An end before the first answer: a refusal would have said that nothing was done.
fn unanswered(mut error: CliError) -> CliError {
    error.message = format!(
        "{}; no step was answered, so how many vectors were moved is not known here (those that were stay so)",
        error.message
    );
    let next = error.next.unwrap_or_default();
    let next = format!(
        "{next} Then run the same command again: it goes on with the rest, and says how many had been moved before."
    );
    error.next = Some(next.trim_start().to_owned());
    error
}

fn vectors(count: u64) -> String {
    match count {
        1 => "1 vector".to_owned(),
        count => format!("{count} vectors"),
    }
}

fn text(run: &ReEmbedAnswer) -> String {
    let model = &run.model;
    let before = run.there.saturating_sub(run.moved);
    let mut text = match (run.moved, run.left, before) {
        (0, 0, 0) => "there is nothing to move: this home has no vectors\n".to_owned(),
        (0, 0, there) => format!(
            "there is nothing to move: {} of this home, all of them under {model}\n",
            vectors(there)
        ),
        (0, _, _) => format!("moved nothing to {model}\n"),
        (moved, _, 0) => format!("moved {} to {model}\n", vectors(moved)),
        (moved, _, before) => format!(
            "moved {} to {model}; {before} of this home's had been there before\n",
            vectors(moved)
        ),
    };
    if run.without_text > 0 {
        text.push_str(&format!(
            "{} without a text, under another model: there is nothing to embed; `heddle vector list` shows which\n",
            stays(run.without_text)
        ));
    }
    let unreadable = run.left_out.len() as u64;
    let rest = run.left.saturating_sub(run.without_text + unreadable);
    if rest > 0 {
        text.push_str(&format!(
            "{} under another model, stored or changed meanwhile: run the same command again\n",
            stays(rest)
        ));
    }
    if run.others > 0 {
        let verb = if run.others == 1 { "belongs" } else { "belong" };
        text.push_str(&format!(
            "{} {verb} to other members, who move their own\n",
            run.others
        ));
    }
    text
}

fn stays(count: u64) -> String {
    let verb = if count == 1 { "stays" } else { "stay" };
    format!("{count} {verb}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(moved: u64, there: u64, left: u64) -> ReEmbedAnswer {
        ReEmbedAnswer {
            model: "m".to_owned(),
            moved,
            there,
            left,
            ..ReEmbedAnswer::default()
        }
    }

    #[test]
    fn the_bar_is_empty_at_first_full_at_the_end_and_goes_on_where_a_killed_run_was() {
        let full = format!("re-embedding [{}] 8 of 8", "#".repeat(24));
        for (there, left, expected) in [
            (0, 8, format!("re-embedding [{}] 0 of 8", ".".repeat(24))),
            (
                6,
                2,
                format!("re-embedding [{}......] 6 of 8", "#".repeat(18)),
            ),
            (8, 0, full),
        ] {
            // Whoever moved them.
            assert_eq!(bar(&run(0, there, left)), expected);
            assert_eq!(bar(&run(there, there, left)), expected);
        }
        assert!(bar(&run(0, 0, 0)).ends_with("0 of 0"));
    }

    #[test]
    fn the_words_say_what_this_run_moved_what_was_there_and_why_the_rest_stays() {
        for (one, expected) in [
            (
                run(0, 0, 0),
                "there is nothing to move: this home has no vectors\n",
            ),
            (
                run(0, 3, 0),
                "there is nothing to move: 3 vectors of this home, all of them under m\n",
            ),
            (run(1, 1, 0), "moved 1 vector to m\n"),
            (
                run(60, 100, 0),
                "moved 60 vectors to m; 40 of this home's had been there before\n",
            ),
        ] {
            assert_eq!(text(&one), expected);
        }
        let rest = ReEmbedAnswer {
            without_text: 1,
            left_out: vec!["vector \"v\"".to_owned()],
            others: 1,
            ..run(0, 5, 4)
        };
        let said = text(&rest);
        for words in [
            "moved nothing to m",
            "1 stays without a text",
            "2 stay under",
            "1 belongs",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn an_end_in_the_middle_says_what_was_done() {
        let down = || CliError::new(5, "no daemon").next("Start one with `heddle up`.");
        let said = stopped(down(), &run(60, 60, 40));
        assert_eq!(
            said.message,
            "no daemon; when the daemon answered last, 60 vectors were moved, for good, and 40 were left"
        );
        let next = said.next.unwrap();
        assert!(
            next.starts_with("Start one") && next.contains("same command again"),
            "{next}"
        );
        // Nothing is known before the first answer, and that is said.
        let said = stopped(down(), &ReEmbedAnswer::default());
        assert!(said.message.starts_with("no daemon; no step was answered"));
        let next = said.next.unwrap();
        assert!(next.contains("how many had been moved before"), "{next}");
        // A refusal has words of its own.
        let refused = stopped(CliError::new(2, "no such model"), &ReEmbedAnswer::default());
        assert_eq!(refused.message, "no such model");
    }
}
