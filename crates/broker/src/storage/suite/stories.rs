//! Receipts, explanations, mentions, sessions.

use super::check;

#[tokio::test]
async fn receipts_rise_and_never_fall_and_a_later_level_implies_the_earlier() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        agent b/two
        subscribe b/one #ops
        subscribe b/two #ops
        send from=a/one id=A fp=1 to=#ops
        explain from=a/one id=A -> 1.1 to=ops until=2000 window=9 counted=true body b/one:-,-,- b/two:-,-,-
        ack b 1.1/one -> 1
        explain from=a/one id=A -> 1.1 to=ops until=2000 window=9 counted=true body b/one:5000,-,- b/two:-,-,-
        shown b 1.1/one at=6000 -> 1
        shown b 1.1/one at=4000 -> 0
        -- The ack of this one was lost: what is acknowledged was delivered and shown.
        acked b 1.1/two at=7000 -> 1
        shown b 1.1/two at=9000 -> 0
        acked b 1.1/one 1.1/two 1.9/one at=8000 -> 1
        explain from=a/one id=A -> 1.1 to=ops until=2000 window=9 counted=true body b/one:5000,6000,8000 b/two:7000,7000,7000
        deliveries b -> none
        -- Only its own member speaks for a delivery.
        send from=a/one id=B fp=1 to=@b/one
        acked a 1.2/one at=1 -> 0
        explain from=a/one id=B -> 1.2 to=0000000000000000000000001S2/one until=2000 window=9 counted=true body b/one:-,-,-
        explain from=b/one id=B -> absent
        "
        .replace("0000000000000000000000001S2", &crate::test_support::member("b").to_string())
        .as_str(),
    )
    .await;
}

#[tokio::test]
async fn mentions_are_found_by_whom_they_mean() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        topic #ops
        send from=a/one id=A fp=1 to=#ops mention=b/one
        send from=a/one id=B fp=1 to=#ops
        send from=a/one id=C fp=1 to=#ops mention=a/one,b/one
        mentions b/one -> 1.1 1.3
        mentions b/one after=1.1 -> 1.3
        mentions b/one rows=1 -> 1.1
        mentions a/one -> 1.3
        mentions a/two -> none
        ",
    )
    .await;
}

#[tokio::test]
async fn c16_an_old_generation_never_touches_a_newer_and_a_silent_one_runs_out() {
    check(
        "
        member a
        member b
        present 0 -> a-never b-never
        session a -> 1
        session a -> 2
        present 99 -> a=70 b-never
        present 100 -> a-never b-never
        renew a 1 200 -> yes
        present 150 -> a=70 b-never
        -- A renewal never shortens.
        renew a 1 120 -> yes
        present 150 -> a=70 b-never
        end a 1 -> yes
        end a 1 -> no
        renew a 1 900 -> no
        present 99 -> a=70 b-never
        expire 99 -> 0
        expire 100 -> 1
        present 0 -> a-5000 b-never
        session a -> 3
        present 0 -> a=70 b-never
        end a 2 -> no
        present 0 -> a=70 b-never
        ",
    )
    .await;
}

#[tokio::test]
async fn dr_16_what_a_member_acknowledged_can_be_read_again_with_how_far_it_came() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        agent b/two
        subscribe b/one #ops
        subscribe b/two #ops
        held b -> none
        send from=a/one id=A fp=1 to=#ops
        send from=a/one id=B fp=1 to=@b/one priority=now
        send from=a/one id=C fp=1 to=@b/one
        send from=a/one id=D fp=1 to=@b/one
        ack b 1.1/one 1.1/two 1.2/one 1.3/one -> 4
        shown b 1.2/one at=6000 -> 1
        acked b 1.1/two at=7000 -> 1
        held b -> 1.2/one:6000,- 1.1/one:-,- 1.1/two:7000,7000 1.3/one:-,-
        held b max=1 -> 1.2/one:6000,- | 1.1/one:-,- | 1.1/two:7000,7000 | 1.3/one:-,-
        held a -> none
        -- Reading it changes nothing: the one that waits still waits.
        deliveries b -> 1.4/one
        ",
    )
    .await;
}
