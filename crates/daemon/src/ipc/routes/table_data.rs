//! The data's part of the table of routes: memory, state, tasks, files, vectors.

use heddle_wire::ipc::{
    ChangeAnswer, FileDeleteBody, FilePage, FileShareAnswer, FileShareBody, FileView, KeyBody,
    ReEmbedAnswer, ReEmbedBody, RecallPage, RememberBody, StatePage, StateSetBody, StateView,
    SweepAnswer, SweepBody, TaskAnswer, TaskCancelBody, TaskClaimBody, TaskCreateBody, TaskPage,
    TaskSettleBody, TaskStory, VectorDeleteBody, VectorHits, VectorPage, VectorSearchBody,
    VectorStoreBody, WarningsView,
};

use super::route::{Route, get, post};
use super::{file, file_get, memory, re_embed, state, task, task_view, vector, warnings};

pub(super) fn data() -> Vec<Route> {
    vec![
        post(
            "/v1/memory/remember",
            memory::remember,
            "Keep a value for later",
        )
        .takes::<RememberBody>()
        .keyed()
        .gives::<ChangeAnswer>(200),
        get(
            "/v1/memory/recall",
            memory::recall,
            "What was remembered, by key, by words, or all of it",
        )
        .asks::<memory::RecallQuery>()
        .gives::<RecallPage>(200),
        post(
            "/v1/memory/forget",
            memory::forget,
            "Forget what was remembered",
        )
        .takes::<KeyBody>()
        .keyed()
        .gives::<ChangeAnswer>(200),
        get(
            "/v1/warnings",
            warnings::get,
            "What an agent lost since its last call; told once",
        )
        .asks::<warnings::Query>()
        .gives::<WarningsView>(200),
        post("/v1/state/set", state::set, "Set a value that all share")
            .takes::<StateSetBody>()
            .keyed()
            .gives::<ChangeAnswer>(200),
        get("/v1/state/get", state::get, "A value that all share")
            .asks::<state::GetQuery>()
            .gives::<StateView>(200),
        get(
            "/v1/state/list",
            state::list,
            "The values that all share, in order of keys",
        )
        .asks::<state::ListQuery>()
        .gives::<StatePage>(200),
        post(
            "/v1/state/delete",
            state::delete,
            "Delete a value that all share",
        )
        .takes::<KeyBody>()
        .keyed()
        .gives::<ChangeAnswer>(200),
    ]
}

pub(super) fn tasks() -> Vec<Route> {
    vec![
        post("/v1/task/create", task::create, "Add a task")
            .takes::<TaskCreateBody>()
            .keyed()
            .gives::<TaskAnswer>(200),
        post(
            "/v1/task/claim",
            task::claim,
            "Claim a task under a lease that activity renews",
        )
        .takes::<TaskClaimBody>()
        .keyed()
        .gives::<TaskAnswer>(200),
        post("/v1/task/release", task::release, "Give a task back")
            .takes::<TaskSettleBody>()
            .keyed()
            .gives::<TaskAnswer>(200),
        post(
            "/v1/task/complete",
            task::complete,
            "Say that a task is done",
        )
        .takes::<TaskSettleBody>()
        .keyed()
        .gives::<TaskAnswer>(200),
        post("/v1/task/cancel", task::cancel, "Cancel a task")
            .takes::<TaskCancelBody>()
            .keyed()
            .gives::<TaskAnswer>(200),
        get(
            "/v1/task/list",
            task_view::list,
            "The tasks, the oldest first; with ready=true those that can be begun",
        )
        .asks::<task_view::ListQuery>()
        .gives::<TaskPage>(200),
        get("/v1/task/get", task_view::get, "A task and its record")
            .asks::<task_view::GetQuery>()
            .gives::<TaskStory>(200),
    ]
}

pub(super) fn files() -> Vec<Route> {
    vec![
        post("/v1/file/share", file::share, "Share a file with the mesh")
            .takes::<FileShareBody>()
            .keyed()
            .gives::<FileShareAnswer>(200),
        get(
            "/v1/file/get",
            file_get::get,
            "A file by id or path; with raw=true its bytes alone",
        )
        .asks::<file_get::GetQuery>()
        .with(&["Accept"])
        .gives::<FileView>(200),
        get(
            "/v1/file/list",
            file::list,
            "The shared files, in order of owners and paths",
        )
        .asks::<file::ListQuery>()
        .gives::<FilePage>(200),
        post("/v1/file/delete", file::delete, "Share a file no longer")
            .takes::<FileDeleteBody>()
            .keyed()
            .gives::<ChangeAnswer>(200),
        post(
            "/v1/file/sweep",
            file::sweep_now,
            "Take away the blobs that no file names",
        )
        .takes::<SweepBody>()
        .gives::<SweepAnswer>(200),
    ]
}

pub(super) fn vectors() -> Vec<Route> {
    vec![
        post(
            "/v1/vector/store",
            vector::store,
            "Keep a text with its embedding",
        )
        .takes::<VectorStoreBody>()
        .keyed()
        .gives::<ChangeAnswer>(200),
        post(
            "/v1/vector/search",
            vector::search,
            "The nearest of what was stored, within one model",
        )
        .reads()
        .takes::<VectorSearchBody>()
        .gives::<VectorHits>(200),
        post("/v1/vector/delete", vector::delete, "Delete a vector")
            .takes::<VectorDeleteBody>()
            .keyed()
            .gives::<ChangeAnswer>(200),
        get(
            "/v1/vector/list",
            vector::list,
            "The vectors, in order of keys",
        )
        .asks::<vector::ListQuery>()
        .gives::<VectorPage>(200),
        post(
            "/v1/vector/re_embed",
            re_embed::step,
            "One step of moving this home's vectors to another model",
        )
        .takes::<ReEmbedBody>()
        .gives::<ReEmbedAnswer>(200),
    ]
}
