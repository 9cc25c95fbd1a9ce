//! The part of the table of routes that is about effects.

use heddle_wire::ipc::{
    EffectApproveAnswer, EffectApproveBody, EffectCompensateBody, EffectEndBody, EffectList,
    EffectLog, EffectRegisterBody, EffectRequestAnswer, EffectRequestBody, EffectResolveBody,
    EffectStartBody, EffectSurface, EffectVerifyBody, EffectView,
};

use super::effect;
use super::route::{Route, get, post};

pub(super) fn routes() -> Vec<Route> {
    let mut all = asking();
    all.extend(running());
    all.extend(looking());
    all
}

fn asking() -> Vec<Route> {
    vec![
        post("/v1/effect/request", effect::request, "Ask for approval")
            .keyed()
            .takes::<EffectRequestBody>()
            .gives::<EffectRequestAnswer>(200),
        post(
            "/v1/effect/approve",
            effect::approve,
            "Approve, for a nonce",
        )
        .keyed()
        .takes::<EffectApproveBody>()
        .gives::<EffectApproveAnswer>(200),
        post("/v1/effect/deny", effect::deny, "Deny or revoke a request")
            .keyed()
            .takes::<EffectApproveBody>()
            .gives::<EffectView>(200),
        post(
            "/v1/effect/register",
            effect::register,
            "Consume the key and register the effect, once",
        )
        .keyed()
        .takes::<EffectRegisterBody>()
        .gives::<EffectView>(200),
    ]
}

fn running() -> Vec<Route> {
    vec![
        post("/v1/effect/start", effect::start, "Take the run")
            .keyed()
            .takes::<EffectStartBody>()
            .gives::<EffectView>(200),
        post("/v1/effect/finish", effect::finish, "Say how the run ended")
            .keyed()
            .takes::<EffectEndBody>()
            .gives::<EffectView>(200),
        post(
            "/v1/effect/resolve",
            effect::resolve,
            "A person's word about a run that nobody ended",
        )
        .keyed()
        .takes::<EffectResolveBody>()
        .gives::<EffectView>(200),
        post(
            "/v1/effect/verify",
            effect::verify,
            "The verifier's verdict",
        )
        .keyed()
        .takes::<EffectVerifyBody>()
        .gives::<EffectView>(200),
        post(
            "/v1/effect/compensate",
            effect::compensate,
            "Begin the one compensation of what failed its verification",
        )
        .keyed()
        .takes::<EffectCompensateBody>()
        .gives::<EffectView>(200),
        post(
            "/v1/effect/compensated",
            effect::compensated,
            "Say how the compensation ended",
        )
        .keyed()
        .takes::<EffectEndBody>()
        .gives::<EffectView>(200),
    ]
}

fn looking() -> Vec<Route> {
    vec![
        get("/v1/effect/status", effect::status, "What became of a key")
            .asks::<effect::StatusQuery>()
            .gives::<EffectView>(200),
        get("/v1/effect/list", effect::list, "Effects, newest first")
            .asks::<effect::ListQuery>()
            .gives::<EffectList>(200),
        get(
            "/v1/effect/log",
            effect::log,
            "Attempts, refusals and failures, newest first",
        )
        .asks::<effect::LogQuery>()
        .gives::<EffectLog>(200),
        get(
            "/v1/effect/surface-check",
            effect::surface_check,
            "Whether the store can keep the promise",
        )
        .asks::<effect::SurfaceQuery>()
        .gives::<EffectSurface>(200),
    ]
}
