//! Work queues: one consumer each, leases, fences.

use super::check;

#[tokio::test]
async fn a_message_of_a_queue_goes_to_one_consumer_and_its_ack_counts_once() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        send from=a/one id=A fp=1 to=queue:q -> created 1.1
        queues -> q
        send from=a/one id=B fp=1 to=queue:q -> created 1.2
        send from=a/one id=A fp=1 to=queue:q -> duplicate 1.1
        -- Nobody is pushed anything.
        deliveries a -> none
        rows -> dedupe=2 message=2 history=2 delivery=0 mention=0
        take a/none q -> unknown_agent
        take a/one other -> none
        take a/one q max=1 -> 1.1#1*1
        take b/one q -> 1.2#2*1
        take b/one q -> none
        done b/one q 1.1#1 -> stale
        done a/one q 1.1#2 -> stale
        done a/one q 1.1#1 1.9#1 -> apply unknown
        done a/one q 1.1#1 -> already
        release a/one q 1.1#1 -> stale
        take a/one q now=1000 -> 1.2#3*2
        done b/one q 1.2#2 -> stale
        done a/one q 1.2#3 -> apply
        take a/one q now=9000 -> none
        explain from=a/one id=B -> 1.2 to=q until=2000 window=9 counted=true body acked#3*2 by=a/one(a) taken=7 acked=5000
        ",
    )
    .await;
}

#[tokio::test]
async fn a_lease_that_ran_out_is_taken_over_with_a_higher_fence_and_the_old_one_is_refused() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        queue q -> new
        queue q -> known
        send from=a/one id=A fp=1 to=queue:q
        take a/one q now=0 lease=10 -> 1.1#1*1
        take b/one q now=9 -> none
        -- Over, but not taken over: its holder may still finish.
        done a/one q 1.1#1 -> apply
        send from=a/one id=B fp=1 to=queue:q
        take a/one q now=20 lease=10 -> 1.2#2*1
        take b/one q now=30 lease=10 -> 1.2#3*2
        done a/one q 1.2#2 -> stale
        release a/one q 1.2#2 -> stale
        release b/one q 1.2#3 -> apply
        release b/one q 1.2#3 -> already
        done b/one q 1.2#3 -> stale
        take a/one q now=30 -> 1.2#4*3
        explain from=a/one id=B -> 1.2 to=q until=2000 window=9 counted=true body leased#4*3 by=a/one(a) taken=7 acked=-
        ",
    )
    .await;
}

#[tokio::test]
async fn a_queue_is_taken_by_priority_and_then_in_order_and_redelivery_keeps_its_place() {
    check(
        "
        member a
        agent a/one
        send from=a/one id=A fp=1 to=queue:q priority=low
        send from=a/one id=B fp=1 to=queue:q
        send from=a/one id=C fp=1 to=queue:q priority=now
        send from=a/one id=D fp=1 to=queue:q bytes=50
        take a/one q max=2 now=0 lease=5 -> 1.3#1*1 1.2#2*1
        take a/one q bytes=1 now=1 lease=100 -> 1.4#3*1
        take a/one q now=5 lease=100 -> 1.3#4*2 1.2#5*2 1.1#6*1
        ",
    )
    .await;
}

#[tokio::test]
async fn a_lease_is_renewed_by_its_holder_only_and_never_becomes_shorter() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        send from=a/one id=A fp=1 to=queue:q
        take a/one q now=0 lease=10 -> 1.1#1*1
        longer a/one q now=5 lease=20 1.1#1 -> apply
        take b/one q now=24 -> none
        -- A shorter wish changes nothing.
        longer a/one q now=6 lease=1 1.1#1 -> apply
        take b/one q now=24 -> none
        longer b/one q now=6 lease=99 1.1#1 -> stale
        longer a/one q now=6 lease=99 1.1#2 1.9#1 -> stale unknown
        longer a/one other now=6 lease=99 1.1#1 -> unknown
        -- Over, but not taken over: still its own.
        longer a/one q now=25 lease=10 1.1#1 -> apply
        take b/one q now=34 -> none
        take b/one q now=35 lease=10 -> 1.1#2*2
        longer a/one q now=36 lease=99 1.1#1 -> stale
        release b/one q 1.1#2 -> apply
        longer b/one q now=37 lease=99 1.1#2 -> stale
        take a/one q now=37 -> 1.1#3*3
        done a/one q 1.1#3 -> apply
        longer a/one q now=38 lease=99 1.1#3 -> stale
        take b/one q now=999 -> none
        ",
    )
    .await;
}

#[tokio::test]
async fn queues_are_counted_by_what_can_be_taken_and_what_is_leased() {
    check(
        "
        member a
        agent a/one
        counts now=0 -> none
        queue empty -> new
        send from=a/one id=A fp=1 to=queue:q
        send from=a/one id=B fp=1 to=queue:q
        send from=a/one id=C fp=1 to=queue:q
        counts now=0 -> empty=0/0 q=3/0
        take a/one q now=0 lease=10 max=2 -> 1.1#1*1 1.2#2*1
        counts now=9 -> empty=0/0 q=1/2
        counts now=10 -> empty=0/0 q=3/0
        done a/one q 1.1#1 -> apply
        release a/one q 1.2#2 -> apply
        counts now=9 -> empty=0/0 q=2/0
        ",
    )
    .await;
}

#[tokio::test]
async fn a_fence_never_falls_below_the_floor_of_its_take_nor_below_the_latest_one() {
    check(
        "
        member a
        agent a/one
        send from=a/one id=A fp=1 to=queue:q
        send from=a/one id=B fp=1 to=queue:q
        take a/one q now=0 lease=10 max=1 floor=500 -> 1.1#501*1
        -- The clock was set back: the count goes on.
        take a/one q now=0 lease=10 max=1 floor=30 -> 1.2#502*1
        take a/one q now=10 lease=10 floor=700 -> 1.1#701*2 1.2#702*2
        done a/one q 1.1#501 -> stale
        done a/one q 1.1#701 -> apply
        ",
    )
    .await;
}

#[tokio::test]
async fn what_is_held_back_was_given_to_nobody_and_is_settled_by_nobody() {
    check(
        "
        member a
        agent a/one
        send from=a/one id=A fp=1 to=queue:q
        send from=a/one id=B fp=1 to=queue:q
        take a/one q now=0 lease=10 -> 1.1#1*1 1.2#2*1
        hold q 1.1#1 1.2#9 -> held
        hold other 1.1#1 -> held
        hold q 1.1#1 -> held
        explain from=a/one id=A -> 1.1 to=q until=2000 window=9 counted=true body leased#1*0 taken=- acked=-
        done a/one q 1.1#1 -> stale
        release a/one q 1.1#1 -> stale
        longer a/one q now=1 lease=99 1.1#1 -> stale
        done a/one q 1.2#2 -> apply
        -- What is done stays done.
        hold q 1.2#2 -> held
        done a/one q 1.2#2 -> already
        take a/one q now=9 -> none
        take a/one q now=10 -> 1.1#3*1
        done a/one q 1.1#3 -> apply
        ",
    )
    .await;
}

#[tokio::test]
async fn lf_16_the_leases_of_an_older_copy_end_with_its_epoch() {
    check(
        "
        member a
        member b
        agent a/one
        agent b/one
        send from=a/one id=A fp=1 to=queue:q
        send from=a/one id=B fp=1 to=queue:q
        take a/one q now=0 lease=1000 -> 1.1#1*1 1.2#2*1
        done a/one q 1.2#2 -> apply
        take b/one q now=1 -> none
        bump -> 2
        -- Who gave it back since, and who has it now, the copy does not know: its own holder settles nothing.
        done a/one q 1.1#1 -> stale
        longer a/one q now=1 lease=99 1.1#1 -> stale
        counts now=1 -> q=1/0
        take b/one q now=1 -> 1.1#3*2
        done a/one q 1.1#1 -> stale
        release a/one q 1.1#1 -> stale
        done b/one q 1.1#3 -> apply
        -- What is done stays done.
        done a/one q 1.2#2 -> already
        ",
    )
    .await;
}
