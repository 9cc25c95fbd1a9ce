//! Calls about effects: carried to whoever decides, with the member that the connection has proven.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use heddle_core::error_code::ErrorCode;
use heddle_core::names::AgentName;
use heddle_wire::broker::{EffectCall, ReplyResult, Request};
use heddle_wire::problem::Problem;

use super::house::House;
use crate::effects::{EffectAsked, EffectAuthority};
use crate::principal::Principal;

/// Says no to everybody, and repeats who asked for what.
struct Parrot;

impl EffectAuthority for Parrot {
    fn call(
        &self,
        principal: Principal,
        asked: EffectAsked,
    ) -> Pin<Box<dyn Future<Output = ReplyResult> + Send + '_>> {
        Box::pin(async move {
            let EffectAsked {
                agent, id, call, ..
            } = asked;
            let who = format!("@{}/{agent}", principal.member_name);
            let detail = format!("{who} {} {}", call.verb(), id.unwrap_or_default());
            let problem =
                Problem::new(ErrorCode::ApprovalNeeded, detail).with("request_id", "env_1");
            ReplyResult::EffectRefused {
                problem: Box::new(problem),
            }
        })
    }
}

fn ask() -> Request {
    Request::Effect {
        agent: AgentName::parse("one").unwrap(),
        id: Some("id-1".to_owned()),
        seen: None,
        call: Box::new(EffectCall::Status {
            key: "k".to_owned(),
        }),
    }
}

fn problem(reply: ReplyResult) -> Problem {
    match reply {
        ReplyResult::EffectRefused { problem } => *problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_broker_without_an_authority_lets_nothing_happen() {
    let house = House::new().await;
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    let refused = problem(client.request(ask()).await);
    assert_eq!(refused.known_code(), Some(ErrorCode::ApprovalRefused));
    assert!(!refused.next.is_empty());
}

#[tokio::test]
async fn the_authority_hears_the_proven_member_and_its_words_come_back_whole() {
    let house = House::new().await;
    house.broker.decided_by(Arc::new(Parrot));
    for name in ["a", "b"] {
        let (mut client, _serving) = house.enter(name, &["one"]).await;
        let refused = problem(client.request(ask()).await);
        assert_eq!(refused.known_code(), Some(ErrorCode::ApprovalNeeded));
        assert!(refused.detail.contains("/one status id-1"), "{refused:?}");
        assert!(refused.detail.starts_with('@'));
        assert_eq!(refused.extra["request_id"], "env_1");
    }
}
