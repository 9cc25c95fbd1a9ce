//! Grants at accept: who gets no delivery, what is written all the same, what comes back and what does not.

use heddle_core::membership::{Capabilities, Capability, GrantChange};

use super::check;
use super::script::{Script, join, refused};
use crate::members::Granted;
use crate::test_support::{TestStorage, member, mesh, name_of};

impl<S: TestStorage> Script<'_, S> {
    pub(super) async fn grants(&self, verb: &str, rest: &[&str]) -> String {
        let names = |granted: Capabilities| {
            let names: Vec<&str> = granted.list().map(Capability::as_str).collect();
            if names.is_empty() {
                "nothing".to_owned()
            } else {
                names.join(",")
            }
        };
        if verb == "grants" {
            let rows = self.storage.grants(mesh(1), member(rest[0])).await.unwrap();
            return join(
                rows.into_iter()
                    .map(|(peer, granted)| format!("{}={}", name_of(peer), names(granted))),
            );
        }
        let some = rest[2..]
            .iter()
            .map(|name| Capability::parse(name).unwrap());
        let some: Capabilities = some.collect();
        let change = if verb == "grant" {
            GrantChange::Grant(some)
        } else {
            GrantChange::Revoke(some)
        };
        let (recipient, peer) = (member(rest[0]), member(rest[1]));
        let changing = self.storage.change_grant(mesh(1), recipient, peer, change);
        match changing.await {
            Ok(Granted {
                capabilities,
                changed,
            }) => {
                let word = if changed { "new" } else { "known" };
                format!("{} {word}", names(capabilities))
            }
            Err(error) => refused(&error),
        }
    }
}

const THREE: &str = "
    member a
    member b
    member c
    agent a/one
    agent b/one
    agent b/two
    agent c/one
    subscribe b/one #ops
    subscribe b/two #ops
    subscribe c/one #ops
";

#[tokio::test]
async fn a_recipient_that_has_not_granted_as_much_gets_no_delivery_and_others_do() {
    let text = "
        send from=a/one id=A fp=1 to=#ops -> created 1.1
        revoke b a topic -> dm new
        revoke b a topic -> dm known
        grants b -> a=dm
        grants a -> none
        -- Accepted, with everything but b's deliveries; b's word is b's alone.
        send from=a/one id=B fp=1 to=#ops mention=b/one -> created 1.2
        send from=a/one id=C fp=1 to=@b/one -> created 1.3
        send from=c/one id=C fp=1 to=#ops -> created 1.4
        deliveries b -> 1.1/one 1.1/two 1.3/one 1.4/one 1.4/two
        deliveries c -> 1.1/one 1.2/one 1.4/one
        rows -> dedupe=4 message=4 history=4 delivery=8 mention=1
        -- A retry is a duplicate, as ever: the sender cannot tell.
        send from=a/one id=B fp=1 to=#ops mention=b/one -> duplicate 1.2
        orphans -> none
    ";
    check(&format!("{THREE}{text}")).await;
}

#[tokio::test]
async fn a_direct_message_to_a_block_is_accepted_and_delivered_to_nobody_and_a_grant_brings_nothing_back()
 {
    let text = "
        revoke b a dm topic -> nothing new
        send from=a/one id=A fp=1 to=@b/one ; send from=a/one id=B fp=1 to=@c/one -> created 1.1 ; created 1.2
        send from=a/one id=C fp=1 to=#ops ; send from=c/one id=D fp=1 to=@b/one -> created 1.3 ; created 1.4
        deliveries b -> 1.4/one
        deliveries c -> 1.2/one 1.3/one
        rows -> dedupe=4 message=4 history=4 delivery=3 mention=0
        orphans -> none
        grant b a dm -> dm new
        deliveries b -> 1.4/one
        send from=a/one id=E fp=1 to=@b/two -> created 1.5
        deliveries b -> 1.4/one 1.5/two
        grant b a topic -> dm,topic new
        grants b -> none
        send from=a/one id=F fp=1 to=#ops -> created 1.6
        deliveries b -> 1.4/one 1.5/two 1.6/one 1.6/two
        orphans -> none
    ";
    check(&format!("{THREE}{text}")).await;
}

#[tokio::test]
async fn work_and_ops_need_no_grant_and_only_members_have_one() {
    let text = "
        revoke b a dm topic -> nothing new
        revoke b c dm -> topic new
        grants b -> a=nothing c=topic
        send from=a/one id=A fp=1 to=queue:work -> created 1.1
        send from=a/one id=B fp=1 to=log -> created 1.2
        send from=a/one id=C fp=1 to=@b/none -> unknown_recipient
        revoke b nobody dm -> unknown_member
        revoke nobody a dm -> unknown_member
        rows -> dedupe=2 message=2 history=2 delivery=0 mention=0
        orphans -> none
    ";
    check(&format!("{THREE}{text}")).await;
}
