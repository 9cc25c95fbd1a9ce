//! What an accept writes and answers, each case a script.

use super::check;

#[tokio::test]
async fn br_01_br_02_an_accept_leaves_all_five_effects_and_a_refusal_none() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        subscribe a/one #ops -> new
        subscribe b/one #ops -> new
        send from=a/one id=A fp=1 to=#ops mention=b/one,b/none -> created 1.1
        rows -> dedupe=1 message=1 history=1 delivery=2 mention=1
        known from=a/one id=A -> 1.1 fp=1
        send from=a/one id=B fp=1 to=#none -> unknown_recipient
        send from=a/one id=C fp=1 to=@b/none -> unknown_recipient
        rows -> dedupe=1 message=1 history=1 delivery=2 mention=1
        known from=a/one id=B -> absent
        orphans -> none
        ",
    )
    .await;
}

#[tokio::test]
async fn br_03_deliveries_are_the_subscribers_of_that_moment_each_once() {
    check(
        "
        member a
        member b
        member c
        agent a/one
        agent a/two
        agent b/one
        agent c/one
        topic #ops -> new
        topic #other -> new
        subscribe a/one #ops
        subscribe a/two #ops
        subscribe b/one #ops
        subscribe c/one #other
        -- The sender is one of them.
        send from=a/one id=A fp=1 to=#ops -> created 1.1
        unsubscribe b/one #ops -> new
        unsubscribe b/one #ops -> known
        subscribe c/one #ops -> new
        subscribe c/one #ops -> known
        send from=a/one id=B fp=1 to=#ops -> created 1.2
        send from=a/one id=C fp=1 to=@b/one -> created 1.3
        deliveries a -> 1.1/one 1.1/two 1.2/one 1.2/two
        deliveries b -> 1.1/one 1.3/one
        deliveries c -> 1.2/one
        rows -> dedupe=3 message=3 history=3 delivery=7 mention=0
        ",
    )
    .await;
}

#[tokio::test]
async fn br_06_an_id_refused_for_its_recipient_is_free_and_leaves_no_gap() {
    check(
        "
        member a
        agent a/one
        topic #ops
        send from=a/one id=A fp=1 to=#ops -> created 1.1
        send from=a/one id=B fp=1 to=#late -> unknown_recipient
        send from=a/one id=C fp=1 to=#ops -> created 1.2
        topic #late
        send from=a/one id=B fp=1 to=#late -> created 1.3
        history -> 1.1=A 1.2=C 1.3=B
        ",
    )
    .await;
}

#[tokio::test]
async fn br_07_br_08_one_id_in_one_batch_is_one_message() {
    check(
        "
        member a
        agent a/one
        subscribe a/one #ops
        send from=a/one id=A fp=1 to=#ops ; send from=a/one id=A fp=1 to=#ops ; send from=a/one id=A fp=2 to=#ops -> created 1.1 ; duplicate 1.1 ; conflict 1
        send from=a/one id=A fp=1 to=#ops -> duplicate 1.1
        send from=a/one id=A fp=2 to=#ops -> conflict 1
        rows -> dedupe=1 message=1 history=1 delivery=1 mention=0
        ",
    )
    .await;
}

#[tokio::test]
async fn a_consumed_id_is_answered_though_its_recipient_is_not_there() {
    check(
        "
        member a
        agent a/one
        topic #ops
        send from=a/one id=A fp=1 to=#ops -> created 1.1
        send from=a/one id=A fp=1 to=#gone -> duplicate 1.1
        send from=a/one id=A fp=2 to=#gone -> conflict 1
        ",
    )
    .await;
}

#[tokio::test]
async fn fp_07_a_request_that_shares_the_shown_prefix_only_is_a_conflict_in_a_later_set_and_in_its_own()
 {
    check(
        "
        member a
        agent a/one
        topic #ops
        send from=a/one id=A fp=7/1 to=#ops -> created 1.1
        send from=a/one id=A fp=7/2 to=#ops -> conflict 7
        send from=a/one id=A fp=7/1 to=#ops -> duplicate 1.1
        send from=a/one id=B fp=7/1 to=#ops ; send from=a/one id=B fp=7/2 to=#ops ; send from=a/one id=B fp=7/1 to=#ops -> created 1.2 ; conflict 7 ; duplicate 1.2
        rows -> dedupe=2 message=2 history=2 delivery=0 mention=0
        ",
    )
    .await;
}

#[tokio::test]
async fn br_15_a_message_that_fails_takes_no_neighbour_along_and_nobody_is_its_duplicate() {
    check(
        "
        member a
        agent a/one
        subscribe a/one #ops
        send from=a/one id=A fp=1 to=#ops as=7 -> created 1.1
        -- The broker id is taken: the message row fails after the dedupe row was written.
        send from=a/one id=B fp=1 to=#ops ; send from=a/one id=C fp=1 to=#ops as=7 ; send from=a/one id=C fp=1 to=#ops ; send from=a/one id=D fp=1 to=#ops -> created 1.2 ; failed ; created 1.3 ; created 1.4
        history -> 1.1=A 1.2=B 1.3=C 1.4=D
        rows -> dedupe=4 message=4 history=4 delivery=4 mention=0
        send from=a/one id=E fp=1 to=#ops as=7 -> failed
        known from=a/one id=E -> absent
        ",
    )
    .await;
}

#[tokio::test]
async fn c1_the_same_id_of_two_members_or_two_agents_is_two_messages() {
    check(
        "
        member a
        member b
        agent a/one
        agent a/two
        agent b/one
        topic #ops
        send from=a/one id=deploy-42 fp=1 to=#ops -> created 1.1
        send from=b/one id=deploy-42 fp=1 to=#ops -> created 1.2
        send from=a/two id=deploy-42 fp=2 to=#ops -> created 1.3
        send from=b/one id=deploy-42 fp=2 to=#ops -> conflict 1
        known from=a/one id=deploy-42 -> 1.1 fp=1
        known from=b/one id=deploy-42 -> 1.2 fp=1
        known from=a/two id=deploy-42 -> 1.3 fp=2
        ",
    )
    .await;
}
