//! `heddle advanced fingerprint | canonicalize | dump | export | sweep | re-embed`: see what the gate sees and what a
//! mesh holds; tidy up by hand; move to another model.

use std::collections::BTreeSet;
use std::io::BufRead;

use clap::{Args as ClapArgs, Subcommand};
use heddle_core::canonical::{canonicalize, parse_ijson};
use heddle_core::envelope::SendRequest;
use heddle_core::fingerprint::{ENVELOPE_VERSION, hex, request_covered};
use heddle_wire::from_wire;
use heddle_wire::ipc::{SendBody, SweepAnswer, SweepBody};
use heddle_wire::problem::Problem;
use serde_json::{Value, json};

use super::{export, re_embed};
use crate::cli::context::refuse_left_out;
use crate::cli::{CliError, Context, bounded, exit, ui};

/// Far more than any request may have.
const INPUT_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read a send request, print each component of its fingerprint and the digest
    Fingerprint {
        /// Every line of the input is a request of its own; print only the digests
        #[arg(long)]
        lines: bool,
    },
    /// Print every replicated row of a mesh (--mesh) as a canonical line; equal replicas print equal bytes
    Dump,
    /// Print everything that this home holds, or one mesh (--mesh), as JSON lines
    Export(export::Args),
    /// Take away what no shared file names any more; the daemon does it every day by itself
    Sweep {
        /// How long what nobody names is left alone; an hour where nothing is said
        #[arg(long)]
        grace_seconds: Option<u64>,
    },
    /// Move this home's vectors to another model; can be interrupted and run again
    ReEmbed(re_embed::Args),
    /// Read JSON, print its RFC 8785 bytes
    Canonicalize {
        /// Every line of the input is a document of its own
        #[arg(long)]
        lines: bool,
    },
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Sweep { grace_seconds } => {
            let answer = context.client().sweep_files(&SweepBody { grace_seconds })?;
            context.print(&answer, swept)
        }
        Verb::Fingerprint { lines: false } => ui::json(&components(&whole_input()?)?),
        Verb::Fingerprint { lines: true } => each_line(|line| {
            let components = components(line)?;
            Ok(components["request_fingerprint"]
                .as_str()
                .unwrap_or_default()
                .to_owned())
        }),
        Verb::Dump => dump(context),
        Verb::Export(args) => export::run(context, &args),
        Verb::ReEmbed(args) => re_embed::run(context, &args),
        Verb::Canonicalize { lines: false } => ui::raw(&canonical(&whole_input()?)?),
        Verb::Canonicalize { lines: true } => each_line(canonical),
    }
}

/// Page by page: a mesh that changes meanwhile is printed as no moment had it.
fn dump(context: &Context) -> Result<(), CliError> {
    let client = context.client();
    let mut cursor: Option<String> = None;
    let mut left_out = BTreeSet::new();
    loop {
        let mut query: Vec<_> = context.mesh_scope().into_iter().collect();
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = client.dump(&query)?;
        let mut text = String::new();
        for line in &page.lines {
            text.push_str(line);
            text.push('\n');
        }
        ui::raw(&text)?;
        left_out.extend(page.left_out);
        match page.cursor {
            None => break,
            next => cursor = next,
        }
    }
    // Each page goes through all rows, so each names them.
    refuse_left_out(left_out)
}

fn swept(answer: &SweepAnswer) -> String {
    let mut text = format!(
        "{} blobs ({} bytes) and {} old marks of deleted files are gone\n",
        answer.blobs, answer.bytes, answer.tombstones
    );
    if answer.young > 0 {
        text.push_str(&format!(
            "{} that nobody names are young and stay for now\n",
            answer.young
        ));
    }
    if answer.failed > 0 {
        text.push_str(&format!(
            "{} could not be taken away; `heddle logs` says why\n",
            answer.failed
        ));
    }
    text
}

fn whole_input() -> Result<Vec<u8>, CliError> {
    bounded::all(std::io::stdin().lock(), INPUT_BYTES_MAX).map_err(|error| unread(&error))
}

fn unread(error: &std::io::Error) -> CliError {
    CliError::new(exit::USAGE, format!("standard input: {error}"))
        .next("Give the JSON on standard input, from a file say: `<` and its name.")
}

/// A line that is refused prints its refusal, so that line n of the output answers line n of the input.
fn each_line(f: impl Fn(&[u8]) -> Result<String, CliError>) -> Result<(), CliError> {
    let mut out = String::new();
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| unread(&error))?;
        match f(&line) {
            Ok(text) => out.push_str(&text),
            Err(error) => out.push_str(&format!("error: {}", error.message)),
        }
        out.push('\n');
        if out.len() > 1 << 16 {
            ui::raw(&std::mem::take(&mut out))?;
        }
    }
    ui::raw(&out)
}

fn canonical(bytes: &[u8]) -> Result<String, CliError> {
    let refused = |error: heddle_core::canonical::CanonicalError| {
        CliError::new(exit::USAGE, error.to_string()).next(
            "Correct the JSON on standard input and run this again: what RFC 8785 would merge or lose is refused.",
        )
    };
    let canonical = canonicalize(&parse_ijson(bytes).map_err(refused)?).map_err(refused)?;
    Ok(String::from_utf8_lossy(&canonical).into_owned())
}

fn components(bytes: &[u8]) -> Result<Value, CliError> {
    let refused = |problem: Problem| {
        CliError::new(exit::USAGE, problem.detail)
            .next("Correct the request on standard input and run this again: it is a body of `POST /v1/send`, as JSON.")
    };
    let body: SendBody = from_wire::body(bytes).map_err(refused)?;
    let request: SendRequest = from_wire::send_request(&body).map_err(refused)?;
    let reference = request.to.reference();
    let covered = request_covered(&request, &reference);
    let preimage = covered.preimage();
    let body_hash = preimage.split(|byte| *byte == 0).nth(6).unwrap_or_default();
    Ok(json!({
        "envelope_version": ENVELOPE_VERSION,
        "destination_kind": request.to.kind().as_str(),
        "destination_ref": reference,
        "reply_to_id": request.reply_to,
        "priority": request.priority.as_str(),
        "meta_canonical": String::from_utf8_lossy(&request.meta_canonical),
        "body_hash": String::from_utf8_lossy(body_hash),
        "mentions": request.mentions,
        "preimage_hex": hex(&preimage),
        "request_fingerprint": covered.fingerprint().to_hex(),
    }))
}
