//! `heddle advanced re-embed --to MODEL`: moves this home's vectors to another model, step by step.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{ReEmbedAnswer, ReEmbedBody};

use super::remember::again;
use crate::cli::{CliError, Context, ui};

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
    let (mut moved, mut skipped) = (0, 0);
    loop {
        // A step whose answer was lost has moved what it has moved; the next one finds the rest.
        let step = again(|| client.re_embed(&body));
        if step.is_err() {
            ui::progress_done();
        }
        let mut step = step?;
        moved += step.moved;
        skipped += step.skipped;
        ui::progress(&bar(moved, step.left));
        if step.cursor.is_none() {
            ui::progress_done();
            (step.moved, step.skipped) = (moved, skipped);
            return context.print(&step, text);
        }
        body.cursor = step.cursor;
    }
}

fn bar(moved: u64, left: u64) -> String {
    let all = moved + left;
    let cells = (moved * BAR_CELLS).checked_div(all).unwrap_or(BAR_CELLS);
    let done = "#".repeat(usize::try_from(cells).unwrap_or(0));
    let rest = ".".repeat(usize::try_from(BAR_CELLS - cells).unwrap_or(0));
    format!("re-embedding [{done}{rest}] {moved} of {all}")
}

fn text(answer: &ReEmbedAnswer) -> String {
    let mut text = match answer.moved {
        0 => format!(
            "nothing to move; this home's vectors are under {}\n",
            answer.model
        ),
        moved => format!("moved {moved} vectors to {}\n", answer.model),
    };
    if answer.left > 0 {
        text = match answer.moved {
            0 => format!("moved nothing to {}\n", answer.model),
            _ => text,
        };
        text.push_str(&format!(
            "{} stay where they are: they have no text, or changed meanwhile; run it again\n",
            answer.left
        ));
    }
    if answer.others > 0 {
        text.push_str(&format!(
            "{} belong to other members, who move their own\n",
            answer.others
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_empty_at_first_and_full_at_the_end() {
        assert_eq!(
            bar(0, 8),
            format!("re-embedding [{}] 0 of 8", ".".repeat(24))
        );
        assert_eq!(
            bar(6, 2),
            format!("re-embedding [{}......] 6 of 8", "#".repeat(18))
        );
        assert_eq!(
            bar(8, 0),
            format!("re-embedding [{}] 8 of 8", "#".repeat(24))
        );
        assert!(bar(0, 0).ends_with("0 of 0"));
    }
}
