//! Many who wait for one effect ask its broker once between them: what they want to know is one answer, and each question
//! of theirs would hold up the one that they wait for.
//!
//! Nobody is answered with what was asked before they came: somebody who has just sent something must not be told how it
//! stood before that (C14).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MeshId;
use heddle_core::names::AgentName;
use heddle_wire::broker::EffectAnswer;
use heddle_wire::problem::Problem;

use crate::shared::lock;

type Told = Result<EffectAnswer, Problem>;
/// Whose question it is: an answer names people as who asks calls them.
type Question = (MeshId, AgentName, String);

#[derive(Default)]
pub(super) struct Looks(Mutex<HashMap<Question, Arc<Look>>>);

#[derive(Default)]
struct Look {
    /// How many were begun.
    begun: AtomicU64,
    /// The last one that has ended, and its number. Held by who asks.
    last: tokio::sync::Mutex<(u64, Option<Told>)>,
}

impl Looks {
    /// Asks, or is told what somebody has asked since this one came.
    pub(super) async fn told<F>(&self, question: Question, ask: impl FnOnce() -> F) -> Told
    where
        F: Future<Output = Told>,
    {
        let look = Arc::clone(lock(&self.0).entry(question.clone()).or_default());
        let told = look.told(ask).await;
        let mut all = lock(&self.0);
        // Nobody else has it but the table.
        if Arc::strong_count(&look) == 2 {
            all.remove(&question);
        }
        told
    }
}

impl Look {
    async fn told<F>(&self, ask: impl FnOnce() -> F) -> Told
    where
        F: Future<Output = Told>,
    {
        let before = self.begun.load(Ordering::Acquire);
        let is_on = self.last.try_lock().is_err();
        let mut last = self.last.lock().await;
        if let (nth, Some(told)) = &*last {
            // A question that was on and had no answer says nothing that could be too old. Who waited for it has no time
            // left for a second one.
            let is_silence = is_on && *nth == before && told.as_ref().is_err_and(is_unanswered);
            if *nth > before || is_silence {
                return told.clone();
            }
        }
        let nth = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let told = ask().await;
        *last = (nth, Some(told.clone()));
        told
    }
}

fn is_unanswered(problem: &Problem) -> bool {
    problem.known_code() == Some(ErrorCode::NotConnected)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heddle_core::clock::{Ids as _, ManualIds};
    use heddle_wire::ipc::EffectView;

    use super::*;

    fn view(nth: u64) -> Told {
        Ok(EffectAnswer::View(Box::new(EffectView {
            logical_request_key: nth.to_string(),
            ..EffectView::default()
        })))
    }

    fn nth(told: Told) -> u64 {
        match told {
            Ok(EffectAnswer::View(view)) => view.logical_request_key.parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_come_at_once_ask_twice_and_nobody_hears_what_was_asked_before_they_came() {
        let looks = Arc::new(Looks::default());
        let asked = Arc::new(AtomicU64::new(0));
        let mesh = MeshId(ManualIds::seeded(1).ulid());
        let agent = AgentName::parse("planner").unwrap();
        let look = |key: &str| {
            let (looks, asked) = (Arc::clone(&looks), Arc::clone(&asked));
            let question = (mesh, agent.clone(), key.to_owned());
            async move {
                let came = asked.load(Ordering::SeqCst);
                let told = looks.told(question, || async {
                    let nth = asked.fetch_add(1, Ordering::SeqCst) + 1;
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    view(nth)
                });
                (came, nth(told.await))
            }
        };
        let first = tokio::spawn(look("k"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let later: Vec<_> = (0..63).map(|_| tokio::spawn(look("k"))).collect();
        assert_eq!(first.await.unwrap(), (0, 1));
        for one in later {
            let (came, told) = one.await.unwrap();
            assert!(told > came, "{told} was asked before {came}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert!(lock(&looks.0).is_empty(), "nothing is kept");
        // Another key is another question, and who goes away leaves it to the next one.
        let gone = tokio::spawn(look("k"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let behind = tokio::spawn(look("k"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        gone.abort();
        let (other, behind) = (look("other").await, behind.await.unwrap());
        assert!(other.1 > other.0 && behind.1 > behind.0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_behind_a_question_without_an_answer_is_told_so_and_who_comes_later_asks() {
        let looks = Arc::new(Looks::default());
        let asked = Arc::new(AtomicU64::new(0));
        let mesh = MeshId(ManualIds::seeded(1).ulid());
        let look = || {
            let (looks, asked) = (Arc::clone(&looks), Arc::clone(&asked));
            let question = (mesh, AgentName::parse("a").unwrap(), "k".to_owned());
            async move {
                let told = looks.told(question, || async {
                    asked.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    Err(Problem::new(ErrorCode::NotConnected, "no answer"))
                });
                told.await.unwrap_err()
            }
        };
        let first = tokio::spawn(look());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let behind: Vec<_> = (0..8).map(|_| tokio::spawn(look())).collect();
        first.await.unwrap();
        for one in behind {
            one.await.unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        look().await;
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
