//! The provider `command`: a program of the home's owner. The text is its input, never an argument.

use std::path::Path;

use heddle_core::limits::VECTOR_PROVIDER_BYTES_MAX;
use heddle_core::redact::redact;
use tokio_util::sync::CancellationToken;

use super::ProviderError;
use crate::hooks::process::{Cause, Errors, Job, run};
use crate::vector_config::VectorConfig;

/// Of what a command says when it fails, so much is shown.
const LINES_MAX: usize = 5;
const CHARS_MAX: usize = 300;

pub(super) async fn ask(
    config: &VectorConfig,
    home: &Path,
    text: String,
    shutdown: &CancellationToken,
) -> Result<Vec<f64>, ProviderError> {
    let Some((program, arguments)) = config.command.split_first() else {
        return Err(ProviderError("[vectors] command is empty".to_owned()));
    };
    let job = Job {
        program: program.into(),
        arguments: arguments.to_vec(),
        folder: home.to_owned(),
        environment: vec![("PATH", "/usr/bin:/bin".into())],
        input: text.into_bytes(),
        timeout: config.timeout(),
        output_bytes_max: VECTOR_PROVIDER_BYTES_MAX,
        errors: Errors::Apart,
    };
    let ran = run(&job, shutdown).await.map_err(|error| {
        ProviderError(format!(
            "the command of [vectors] could not be started: {error}"
        ))
    })?;
    let said = match last_words(&ran.errors) {
        None => String::new(),
        Some(said) => format!("; it said: {said}"),
    };
    let failed = |why: String| ProviderError(format!("the command of [vectors] {why}{said}"));
    match (ran.cause, ran.exit, ran.signal) {
        (Cause::Itself, Some(0), _) => {}
        (Cause::Itself, Some(exit), _) => {
            let by_hand = match said.as_str() {
                "" => "; run by hand, with the text as its input, it may say why",
                _ => "",
            };
            return Err(failed(format!("ended with exit code {exit}{by_hand}")));
        }
        (Cause::Itself, None, signal) => {
            let signal = signal.map_or("a signal".to_owned(), |n| format!("signal {n}"));
            return Err(failed(format!("was ended by {signal}")));
        }
        (Cause::TimedOut, ..) => {
            let seconds = config.timeout().as_secs();
            return Err(failed(format!(
                "did not end within {seconds} s, and was ended"
            )));
        }
        (Cause::Stopped, ..) => return Err(failed("was ended with the daemon".to_owned())),
    }
    if ran.output_bytes > VECTOR_PROVIDER_BYTES_MAX as u64 {
        return Err(failed(format!(
            "wrote more than {VECTOR_PROVIDER_BYTES_MAX} bytes"
        )));
    }
    serde_json::from_slice(&ran.output)
        .map_err(|_| failed("did not write a JSON array of numbers, and nothing else".to_owned()))
}

/// The last lines that a program wrote on its standard error, as one line that does nothing to a terminal and holds no
/// secret; `None` where it wrote nothing.
fn last_words(errors: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(errors);
    let lines = text.lines().map(plain).filter(|line| !line.is_empty());
    let mut last: Vec<String> = lines.collect();
    last.drain(..last.len().saturating_sub(LINES_MAX));
    let words = last.join(" / ");
    let over = words.chars().count().saturating_sub(CHARS_MAX);
    let mut shown: String = words.chars().skip(over).collect();
    if over > 0 {
        shown.insert(0, '…');
    }
    (!shown.is_empty()).then(|| redact(&shown).into_owned())
}

/// Without colours, moves of a cursor, and letters that turn the direction of a line.
fn plain(line: &str) -> String {
    let mut shown = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                // A sequence ends with its first letter; whatever else it was, it is gone.
                let _ = letters
                    .by_ref()
                    .find(|c| c.is_ascii_alphabetic() || *c == '~');
            }
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            letter if letter.is_control() => shown.push(' '),
            letter => shown.push(letter),
        }
    }
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_program_are_few_plain_and_without_secrets() {
        for (said, shown) in [
            ("", None),
            ("\n \r\n\t\n", None),
            ("no model\n", Some("no model")),
            ("1\n2\n3\n4\n5\n6\n", Some("2 / 3 / 4 / 5 / 6")),
            (
                "\u{1b}[1;31mred\u{1b}[0m\u{7} and\tmore",
                Some("red  and more"),
            ),
            ("a\u{202e}b", Some("ab")),
            ("token=abcdef", Some("token=[redacted]")),
        ] {
            let found = last_words(said.as_bytes());
            assert_eq!(found.as_deref(), shown, "{said:?}");
        }
        let long = last_words("x".repeat(4000).as_bytes()).unwrap();
        assert_eq!(long.chars().count(), CHARS_MAX + 1);
        assert!(last_words(&[0xff, b'a']).unwrap().contains('a'));
    }
}
