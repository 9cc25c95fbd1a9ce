//! The provider `command`: a program of the home's owner. The text is its input, never an argument.

use std::path::Path;

use heddle_core::limits::VECTOR_PROVIDER_BYTES_MAX;
use tokio_util::sync::CancellationToken;

use super::ProviderError;
use crate::hooks::process::{Cause, Job, run};
use crate::vector_config::VectorConfig;

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
        hears_errors: false,
    };
    let failed = |why: String| ProviderError(format!("the command of [vectors] {why}"));
    let ran = run(&job, shutdown)
        .await
        .map_err(|error| failed(format!("could not be started: {error}")))?;
    match (ran.cause, ran.exit, ran.signal) {
        (Cause::Itself, Some(0), _) => {}
        (Cause::Itself, Some(exit), _) => {
            return Err(failed(format!(
                "ended with exit code {exit}; run by hand, with the text as its input, it says why"
            )));
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
