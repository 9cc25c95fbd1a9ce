//! One table of routes: the router serves it, and `/v1/openapi.json` describes it.

use super::route::{Route, get, post};
use super::{
    agent, discover, events, explain, inbox, inbox_known, inbox_marks, inbox_search, inbox_thread,
    kept, mesh, mesh_standing, outbox, peer_grants, peers, publish, queue, send, status, sync,
    table_data, topic, upkeep,
};
use heddle_wire::ipc::{
    AckAnswer, AckBody, AgentBody, AgentList, AgentView, BackupBody, BackupView, ClockView, Compat,
    DoctorAnswer, DoctorView, DumpView, ExplainView, Health, InboxPage, KeptPage, KnownAnswer,
    MeshBlockBody, MeshCreateAnswer, MeshCreateBody, MeshGrantBody, MeshInfo, MeshInviteAnswer,
    MeshInviteBody, MeshJoinAnswer, MeshJoinBody, MeshList, MeshPublishBody, MeshPublishView,
    MeshRevokeAnswer, MeshRevokeBody, MeshStandingAnswer, OpBody, OutboxPage, OutboxRow,
    PeerGrantBody, PeerGrantList, PeerGrantView, PeerList, PruneAnswer, PruneBody, QueueList,
    QueuePushBody, QueueRenewBody, QueueSettleBody, QueueTakeBody, QueueTaken, RequeueAnswer,
    RequeueBody, ResumeBody, SearchPage, SeenAnswer, SeenBody, SendAnswer, SendBody, SettledItems,
    ShownAnswer, ShownBody, StatusView, TakeBackAnswer, TakeBackBody, ThreadPage, TopicAnswer,
    TopicBody, TopicList, TopicPostBody, Version,
};

/// Adding a route is adding a line. A test asks for each of them over the real binary.
pub(super) fn routes() -> Vec<Route> {
    let tables = [
        messages(),
        work(),
        inbox_rows(),
        outbox_rows(),
        table_data::data(),
        table_data::tasks(),
        table_data::files(),
        table_data::vectors(),
        sync_routes(),
        super::effect_table::routes(),
        people(),
        meshes(),
        house(),
    ];
    tables.into_iter().flatten().collect()
}

fn messages() -> Vec<Route> {
    vec![
        post(super::SEND, send::send, "Accept a message")
            .takes::<SendBody>()
            .keyed()
            .gives::<SendAnswer>(202)
            .gives::<SendAnswer>(200),
        post("/v1/topic/create", topic::create, "Create a topic")
            .takes::<TopicBody>()
            .gives::<TopicAnswer>(200),
        post(
            super::TOPIC_POST,
            topic::post,
            "Accept a message to a topic",
        )
        .takes::<TopicPostBody>()
        .keyed()
        .gives::<SendAnswer>(202)
        .gives::<SendAnswer>(200),
        post(
            "/v1/topic/subscribe",
            topic::subscribe,
            "Receive what is posted from now on",
        )
        .takes::<TopicBody>()
        .gives::<TopicAnswer>(200),
        post(
            "/v1/topic/unsubscribe",
            topic::unsubscribe,
            "Receive it no longer",
        )
        .takes::<TopicBody>()
        .gives::<TopicAnswer>(200),
        get(
            "/v1/topic/list",
            topic::list,
            "The topics and their subscribers",
        )
        .asks::<topic::ListQuery>()
        .gives::<TopicList>(200),
    ]
}

fn work() -> Vec<Route> {
    vec![
        get(
            "/v1/inbox/known",
            inbox_known::known,
            "Whether an id names a message of this home",
        )
        .asks::<inbox_known::Query>()
        .gives::<KnownAnswer>(200),
        post("/v1/queue/push", queue::push, "Accept work for a queue")
            .takes::<QueuePushBody>()
            .keyed()
            .gives::<SendAnswer>(202)
            .gives::<SendAnswer>(200),
        post("/v1/queue/take", queue::take, "Take work under a lease")
            .takes::<QueueTakeBody>()
            .gives::<QueueTaken>(200),
        post("/v1/queue/ack", queue::ack, "Say that work is done")
            .takes::<QueueSettleBody>()
            .gives::<SettledItems>(200),
        post("/v1/queue/release", queue::release, "Give work back")
            .takes::<QueueSettleBody>()
            .gives::<SettledItems>(200),
        post("/v1/queue/renew", queue::renew, "Keep work for longer")
            .takes::<QueueRenewBody>()
            .gives::<SettledItems>(200),
        get("/v1/queue/list", queue::list, "The queues")
            .asks::<queue::ListQuery>()
            .gives::<QueueList>(200),
    ]
}

fn inbox_rows() -> Vec<Route> {
    vec![
        get("/v1/inbox", inbox::page, "A peek at a mailbox")
            .asks::<inbox::InboxQuery>()
            .gives::<InboxPage>(200),
        post("/v1/inbox/ack", inbox_marks::ack, "Acknowledge messages")
            .takes::<AckBody>()
            .gives::<AckAnswer>(200),
        post(
            "/v1/inbox/shown",
            inbox_marks::shown,
            "Say that messages were put before the agent",
        )
        .takes::<ShownBody>()
        .gives::<ShownAnswer>(200),
        post(
            "/v1/inbox/seen",
            inbox_marks::seen,
            "Move a session's cursor forward",
        )
        .takes::<SeenBody>()
        .gives::<SeenAnswer>(200),
        get(
            "/v1/inbox/search",
            inbox_search::search,
            "Messages by their words, newest first",
        )
        .asks::<inbox_search::Query>()
        .gives::<SearchPage>(200),
        get(
            "/v1/inbox/thread",
            inbox_thread::thread,
            "A reply thread, what came and what was sent, by the id of any of its messages",
        )
        .asks::<inbox_thread::Query>()
        .gives::<ThreadPage>(200),
    ]
}

fn outbox_rows() -> Vec<Route> {
    vec![
        get("/v1/outbox", outbox::page, "Outbox rows, newest first")
            .asks::<outbox::PageQuery>()
            .gives::<OutboxPage>(200),
        post(
            "/v1/outbox/prune",
            outbox::prune,
            "Give the payloads of settled rows back",
        )
        .or_get(outbox::show_prune)
        .takes::<PruneBody>()
        .gives::<PruneAnswer>(200),
        get(
            "/v1/outbox/{id}",
            outbox::show,
            "A row with its chain, by row id or client_message_id",
        )
        .asks::<outbox::FindQuery>()
        .gives::<OutboxRow>(200),
        get(
            "/v1/explain/{id}",
            explain::explain,
            "The whole story of an id across both layers; with wait=, once a level is reached",
        )
        .asks::<explain::Query>()
        .gives::<ExplainView>(200),
        post(
            "/v1/outbox/{id}/requeue",
            outbox::requeue,
            "Retire a row and send its payload under a new id",
        )
        .keyed()
        .asks::<outbox::FindQuery>()
        .takes::<RequeueBody>()
        .gives::<RequeueAnswer>(200),
    ]
}

fn sync_routes() -> Vec<Route> {
    vec![
        get(
            "/v1/mesh/clock",
            sync::clock,
            "The clock of a mesh's data, and how its sync stands",
        )
        .asks::<sync::ClockQuery>()
        .gives::<ClockView>(200),
        get(
            "/v1/mesh/dump",
            sync::dump,
            "Every replicated row as a canonical line, in order",
        )
        .asks::<sync::DumpQuery>()
        .gives::<DumpView>(200),
        get(
            "/v1/mesh/kept",
            kept::list,
            "What others made, this home has, and the log has lost",
        )
        .asks::<sync::DumpQuery>()
        .gives::<KeptPage>(200),
        post(
            "/v1/mesh/take-back",
            kept::take_back,
            "Send again what this home had made and others kept",
        )
        .takes::<TakeBackBody>()
        .gives::<TakeBackAnswer>(200),
        post(
            "/v1/doctor/let-be",
            kept::let_be,
            "Tell no more of what the log has lost",
        )
        .takes::<ResumeBody>()
        .gives::<DoctorAnswer>(200),
        get(
            "/v1/doctor",
            upkeep::doctor,
            "What is wrong, and what to do",
        )
        .gives::<DoctorView>(200),
        post(
            "/v1/doctor/backup",
            upkeep::back_up,
            "A copy of the store, while it runs",
        )
        .takes::<BackupBody>()
        .gives::<BackupView>(200),
        post(
            "/v1/doctor/retry",
            sync::retry,
            "Try an op again that was refused or set aside",
        )
        .takes::<OpBody>()
        .gives::<DoctorAnswer>(200),
        post("/v1/doctor/drop", sync::drop_op, "Give an op up")
            .takes::<OpBody>()
            .gives::<DoctorAnswer>(200),
        post(
            "/v1/doctor/resume-sync",
            sync::resume,
            "Let the sync of a mesh go on",
        )
        .takes::<ResumeBody>()
        .gives::<DoctorAnswer>(200),
    ]
}

fn people() -> Vec<Route> {
    vec![
        post(
            super::AGENT_REGISTER,
            agent::register,
            "Give an agent a mailbox",
        )
        .takes::<AgentBody>()
        .gives::<AgentView>(200),
        get("/v1/agent/list", agent::list, "The mailboxes of this home")
            .asks::<agent::ListQuery>()
            .gives::<AgentList>(200),
        get(
            "/v1/peers",
            peers::list,
            "Who is in the mesh, and how fresh that knowledge is",
        )
        .asks::<peers::PeersQuery>()
        .gives::<PeerList>(200),
        get(
            "/v1/peers/grants",
            peer_grants::list,
            "From whom this home withholds something",
        )
        .asks::<peers::ListQuery>()
        .gives::<PeerGrantList>(200),
        post(
            "/v1/peers/grant",
            peer_grants::grant,
            "Let a peer send this home more",
        )
        .takes::<PeerGrantBody>()
        .gives::<PeerGrantView>(200),
        post(
            "/v1/peers/revoke",
            peer_grants::revoke,
            "Let a peer send this home less",
        )
        .takes::<PeerGrantBody>()
        .gives::<PeerGrantView>(200),
        post(
            "/v1/peers/block",
            peer_grants::block,
            "Let nothing of a peer reach this home",
        )
        .takes::<PeerGrantBody>()
        .gives::<PeerGrantView>(200),
        get(
            "/v1/events",
            events::events,
            "Messages as they arrive, as server-sent events",
        )
        .asks::<inbox::InboxQuery>()
        .with(&["Last-Event-ID"])
        .text("text/event-stream"),
    ]
}

fn meshes() -> Vec<Route> {
    vec![
        get("/v1/mesh/list", mesh::list, "The meshes of this home").gives::<MeshList>(200),
        get("/v1/mesh/info", mesh::info, "A mesh and its members")
            .asks::<mesh::InfoQuery>()
            .gives::<MeshInfo>(200),
        post(
            "/v1/mesh/invite",
            mesh::invite,
            "Make an invitation; its link is a secret",
        )
        .keyed()
        .takes::<MeshInviteBody>()
        .gives::<MeshInviteAnswer>(200),
        post(
            super::MESH_PUBLISH,
            publish::publish,
            "Share a personal mesh with whoever joins; the same again says how far that is",
        )
        .takes::<MeshPublishBody>()
        .gives::<MeshPublishView>(200),
        post(
            super::MESH_JOIN,
            mesh::join,
            "Take up an invitation; the same link again changes nothing",
        )
        .takes::<MeshJoinBody>()
        .gives::<MeshJoinAnswer>(200),
        post(
            super::MESH_CREATE,
            mesh::create,
            "Make a further personal mesh of this home; the same name again changes nothing",
        )
        .takes::<MeshCreateBody>()
        .gives::<MeshCreateAnswer>(200),
        post(
            "/v1/mesh/revoke",
            mesh_standing::revoke,
            "Shut a member out",
        )
        .takes::<MeshRevokeBody>()
        .gives::<MeshRevokeAnswer>(200),
        post(
            "/v1/mesh/block",
            mesh_standing::block,
            "Hear a member no more, until it is granted a role again",
        )
        .takes::<MeshBlockBody>()
        .gives::<MeshStandingAnswer>(200),
        post(
            "/v1/mesh/grant",
            mesh_standing::grant,
            "Give a member a role; that lifts a block",
        )
        .takes::<MeshGrantBody>()
        .gives::<MeshStandingAnswer>(200),
    ]
}

fn house() -> Vec<Route> {
    vec![
        get(
            "/v1/status",
            status::status,
            "Figures, verdict, and the command to run next",
        )
        .gives::<StatusView>(200),
        get("/v1/health", status::health, "Whether it works").gives::<Health>(200),
        get("/v1/version", status::version, "Versions").gives::<Version>(200),
        get(
            "/v1/compat",
            discover::compat,
            "What this daemon speaks, and what it asks of others",
        )
        .gives::<Compat>(200),
        get("/v1/openapi.json", discover::openapi, "This document").document(),
        get("/v1/metrics", status::metrics, "Prometheus text").text("text/plain"),
        post("/v1/shutdown", status::shutdown, "Drain and stop")
            .reads()
            .takes::<status::ShutdownBody>()
            .document(),
    ]
}
