//! The calls after the registration, and those that only look.

use heddle_registrar::authority::Nonce;
use heddle_registrar::binding::{Effect, LogicalKey};
use heddle_registrar::command::{Applied, Kind, Word};
use heddle_registrar::life::Stage;
use heddle_registrar::registrar::Caller;
use heddle_registrar::rows::{Outcome, Step};
use heddle_registrar::storage::{Storage, StorageError};
use heddle_wire::broker::{EffectAnswer, EffectCall};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    EffectCriterion, EffectEndBody, EffectList, EffectLog, EffectLogLine, EffectResolveBody,
    EffectSurface,
};
use heddle_wire::problem::Problem;

use super::desk::{Desk, attempt, failed, invalid, key, viewed};
use super::pages::{self, LogPlace};
use super::said::command_hash;
use super::{attempts, count, story, view};

/// Kept of what a command prints, of each of its two streams.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// A person's note, or a verifier's words.
pub(super) const NOTE_BYTES_MAX: usize = 4 << 10;
/// Of a page that goes through the broker.
const ROWS_MAX: usize = 1000;

pub(super) fn bounded(name: &str, text: &str, bytes_max: usize) -> Result<(), Problem> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    let detail = format!("{name} is longer than {bytes_max} bytes");
    Err(from_wire::invalid(detail))
}

/// How it ended, or why it did not begin.
enum End {
    Ended(Outcome),
    NotStarted(String),
}

fn end(body: EffectEndBody) -> Result<End, Problem> {
    bounded("stdout", &body.stdout, OUTPUT_BYTES_MAX)?;
    bounded("stderr", &body.stderr, OUTPUT_BYTES_MAX)?;
    if let Some(why) = body.not_started {
        bounded("not_started", &why, NOTE_BYTES_MAX)?;
        if body.exit_code.is_some() || !body.stdout.is_empty() {
            let detail = "what was not started has neither exit code nor output";
            return Err(from_wire::invalid(detail));
        }
        return Ok(End::NotStarted(why));
    }
    Ok(End::Ended(Outcome {
        exit_code: body.exit_code,
        stdout: body.stdout,
        stderr: body.stderr,
        truncated: body.truncated,
    }))
}

/// How something ended says only who began it: whose word it is, where it is another's.
fn not_theirs(applied: &Applied, by: &Caller, attempt: &str) -> Option<String> {
    let facts = &applied.facts;
    let (begun, what) = match facts.stage() {
        Stage::Running => (facts.runner()?, "it"),
        Stage::Compensating => (facts.compensator()?, "what makes up for it"),
        _ => return None,
    };
    let is_theirs = begun.by == by.agent && begun.attempt_id == attempt;
    (applied.kind == Kind::Refused && !is_theirs).then(|| {
        format!(
            "{} has begun {what} as attempt {}, and says how it ended; this was {} as attempt {attempt}",
            begun.by, begun.attempt_id, by.agent
        )
    })
}

fn word(body: &EffectResolveBody) -> Result<Word, Problem> {
    match (body.again, body.failed, body.exit_code) {
        (true, false, None) => Ok(Word::Again),
        (false, false, None) => Ok(Word::Done),
        (false, true, Some(0)) => Err(from_wire::invalid("what failed has no exit code of 0")),
        (false, true, exit_code) => Ok(Word::Failed { exit_code }),
        (true, true, _) => Err(from_wire::invalid(
            "what failed has happened: again is false",
        )),
        (_, false, Some(_)) => Err(from_wire::invalid("an exit code is said with failed only")),
    }
}

/// The effect that a word is about. Whatever stands can be named, also what no version would take any more.
fn spoken_of(body: &EffectResolveBody) -> Result<Effect, Problem> {
    let (Some(op), Some(target)) = (&body.op, &body.target) else {
        let detail = "a word names the effect that it is about: op and target, and artifact_hash and run where it has them";
        return Err(from_wire::invalid(detail).next(
            "Say them as `heddle effect status KEY` shows them; a home of an earlier version has to be updated for that. Nothing was recorded.",
        ));
    };
    let artifact = body.artifact_hash.as_deref().unwrap_or_default();
    let run = body.run.as_deref().unwrap_or_default();
    Effect::stored(&body.key, op, target, artifact, run).map_err(invalid)
}

impl<S: Storage> Desk<S> {
    pub(super) async fn step(
        &self,
        by: &Caller,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let ended = match &call {
            EffectCall::Finish(body) | EffectCall::Compensated(body) => {
                Some(body.attempt_id.clone())
            }
            _ => None,
        };
        let of = match &call {
            EffectCall::Resolve(body) => Some(spoken_of(body)?),
            _ => None,
        };
        let (key, applied) = self.taken(by, call).await?;
        if let Ok(applied) = &applied
            && applied.kind == Kind::Fresh
            && let Some(row) = applied.facts.steps.last()
        {
            count::stepped(&row.step, row.round);
        }
        let not_theirs = ended.and_then(|attempt| not_theirs(applied.as_ref().ok()?, by, &attempt));
        let told = match of {
            // A word names the whole effect that it is about, and is answered as such.
            Some(of) => self.told(by, &of, &applied.map_err(failed)?),
            None => self.viewed(by, &key, applied),
        };
        told.map(viewed).map_err(|mut problem| {
            if let Some(words) = not_theirs {
                problem.detail = format!("{key}: {words}");
            }
            problem
        })
    }

    /// Through the registrar, with the key that it is about.
    async fn taken(
        &self,
        by: &Caller,
        call: EffectCall,
    ) -> Result<(LogicalKey, Result<Applied, StorageError>), Problem> {
        let registrar = &self.registrar;
        Ok(match call {
            EffectCall::Start(body) => {
                let (attempt, key) = (attempt(&body.attempt_id)?, key(&body.key)?);
                let hash = command_hash(body.command_hash.as_ref())?;
                let started = registrar.start(key.clone(), attempt.to_string(), hash, by);
                (key, started.await)
            }
            EffectCall::Finish(body) => {
                let (attempt, key) = (attempt(&body.attempt_id)?.to_string(), key(&body.key)?);
                let applied = match end(body)? {
                    End::Ended(outcome) => {
                        registrar.finish(key.clone(), attempt, outcome, by).await
                    }
                    End::NotStarted(why) => {
                        registrar.not_started(key.clone(), attempt, why, by).await
                    }
                };
                (key, applied)
            }
            EffectCall::Resolve(body) => {
                bounded("the note", &body.note, NOTE_BYTES_MAX)?;
                let of = spoken_of(&body)?;
                let key = of.key.clone();
                let word = (word(&body)?, body.note);
                let said = registrar.resolve_round(of, body.round, word, by);
                (key, said.await)
            }
            EffectCall::Verify(body) => {
                bounded("the detail", &body.detail, NOTE_BYTES_MAX)?;
                let key = key(&body.key)?;
                let said = registrar.verify(key.clone(), body.passed, body.detail, by);
                (key, said.await)
            }
            EffectCall::Compensate(body) => {
                let key = key(&body.key)?;
                let nonce = body.nonce.as_deref().map(Nonce::presented);
                let begun = registrar.compensate(key.clone(), nonce, by);
                (key, begun.await)
            }
            EffectCall::Compensated(body) => {
                let (attempt, key) = (attempt(&body.attempt_id)?.to_string(), key(&body.key)?);
                let applied = match end(body)? {
                    End::Ended(outcome) => {
                        let done = registrar.compensation_done(key.clone(), attempt, outcome, by);
                        done.await
                    }
                    End::NotStarted(why) => {
                        registrar.not_started(key.clone(), attempt, why, by).await
                    }
                };
                (key, applied)
            }
            // Nothing else is handed here.
            _ => return Err(from_wire::invalid("this is no step")),
        })
    }

    pub(super) async fn read(
        &self,
        by: &Caller,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        match call {
            EffectCall::Status { key } => self.status(by, &key).await,
            EffectCall::List { limit, cursor } => {
                self.list(cursor.as_deref(), limit.min(ROWS_MAX)).await
            }
            EffectCall::Log {
                key: of,
                limit,
                cursor,
            } => {
                let of = of.as_deref().map(key).transpose()?;
                self.log(of.as_ref(), cursor.as_deref(), limit.min(ROWS_MAX))
                    .await
            }
            EffectCall::Story { id } => {
                let told = story::tell(self, &id).await?;
                Ok(EffectAnswer::Story(Box::new(told)))
            }
            EffectCall::SurfaceCheck => self.surface().await,
            // Nothing else is handed here.
            _ => Err(from_wire::invalid("this is no question")),
        }
    }

    async fn log(
        &self,
        of: Option<&LogicalKey>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<EffectAnswer, Problem> {
        let place = LogPlace::of(cursor)?;
        let noted = self.registrar.log_before(of, place.before, limit + 1);
        let noted = noted.await.map_err(failed)?;
        let again = attempts::retry_lines(&self.registrar, of);
        let (lines, next) = pages::log_page(&place, noted, again, limit);
        let line = |line: heddle_registrar::storage::LoggedLine| EffectLogLine {
            at: line.row.at.to_rfc3339(),
            key: line.row.key,
            event: line.row.event,
            code: line.row.code,
            attempt_id: line.row.attempt_id,
            by: line.row.by,
            detail: line.row.detail,
        };
        Ok(EffectAnswer::Log(EffectLog {
            lines: lines.into_iter().map(line).collect(),
            cursor: next.map(|place| place.to_string()),
        }))
    }

    async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<EffectAnswer, Problem> {
        let after = pages::list_place(cursor)?;
        let mut effects = Vec::new();
        let trouble = self.policy_of_now();
        let page = self.registrar.list_after(after, limit).await;
        let page = page.map_err(failed)?;
        for one in page.effects {
            let facts = match self.registrar.facts(&one.key).await {
                // The others are to be seen all the same.
                Err(error) if error.is_damage() => {
                    effects.push(view::changed(one.key.to_string()));
                    continue;
                }
                facts => facts.map_err(failed)?,
            };
            let mut view = view::view(self.registrar.now(), &one.key, &facts)?;
            view.blocked = self.blocked(trouble.as_deref(), &facts);
            // What was printed is in the status of each.
            (view.stdout, view.stderr) = (None, None);
            effects.push(view);
        }
        Ok(EffectAnswer::List(EffectList {
            effects,
            cursor: page.next.as_ref().map(pages::list_cursor),
        }))
    }

    async fn surface(&self) -> Result<EffectAnswer, Problem> {
        let criteria = self.registrar.surface_check().await.map_err(failed)?;
        let kept = self.registrar.kept().await.map_err(failed)?;
        Ok(EffectAnswer::Surface(EffectSurface {
            changed: kept.changed,
            without_digest: kept.without,
            fit: criteria.iter().all(|criterion| criterion.is_met),
            criteria: criteria
                .iter()
                .map(|criterion| EffectCriterion {
                    letter: criterion.letter.to_string(),
                    asks: criterion.asks.to_owned(),
                    met: criterion.is_met,
                    missing: criterion.missing.clone(),
                })
                .collect(),
        }))
    }
}

/// Whether a step is about the run or about its compensation, for those who count.
pub(super) fn is_of_compensation(step: &Step, round: i64) -> bool {
    round <= 0 && !matches!(step, Step::Verified { .. })
}
