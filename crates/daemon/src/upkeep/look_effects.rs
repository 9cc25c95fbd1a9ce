//! What `heddle doctor` says about the effects of a home: what a start would refuse, it says as well.

use std::path::Path;

use heddle_registrar::storage::sqlite::{kept_in, lacks};
use heddle_store::had_effects;
use heddle_wire::ipc::Finding;

use super::look::{bytes, fine, wrong};
use crate::effects::PolicyFile;

/// What the checks are called: what the daemon says of the same thing stands under the same name.
pub(crate) const POLICY: &str = "effects.toml";
pub(crate) const OLDER: &str = "effects.db and what is remembered of it";
pub(crate) const KEPT: &str = "stored results of effects";

pub(super) fn findings(home: &Path) -> Vec<Finding> {
    let found = lost(home).into_iter().chain(unfit(home)).chain(older(home));
    found.chain(kept(home)).chain([policy(home)]).collect()
}

/// What is answered from is compared with its digest, effect by effect.
fn kept(home: &Path) -> Option<Finding> {
    if bytes(home, "effects.db") == 0 {
        return None;
    }
    let check = KEPT;
    // A file that cannot be read is told of as damaged; one of before there were digests gets them with the next start.
    let kept = kept_in(&home.join("effects.db")).ok()??;
    if !kept.changed.is_empty() {
        return Some(wrong(
            check,
            kept.changed.join("; "),
            "Look at the targets for what has happened: the keys stay used, and nothing is run again. Put effects.db back from a copy of the stopped home that is as new and whole, and check the disk.",
        ));
    }
    let without = match kept.without {
        0 => String::new(),
        rows => format!(
            "; {rows} rows are of an earlier version and have no digest, so nobody can compare them"
        ),
    };
    Some(fine(
        check,
        format!("{} effects are as they were written{without}", kept.effects),
    ))
}

/// Something that keeps used keys used is gone from the file: a daemon does not start with it.
pub(super) fn unfit(home: &Path) -> Option<Finding> {
    if bytes(home, "effects.db") == 0 {
        return None;
    }
    // A file that cannot be read is told of as damaged.
    let lacks = lacks(&home.join("effects.db")).ok()?;
    let names = lacks.join(", ");
    (!lacks.is_empty()).then(|| {
        wrong(
            "effects.db as it was made",
            format!("REPLAY_SURFACE_NOT_FIT: not there, or not as it should be: {names}; `heddle up` does not start with it"),
            "Somebody has changed the file by hand. Put effects.db back from a copy of the stopped home.",
        )
    })
}

fn policy(home: &Path) -> Finding {
    let file = home.join(POLICY);
    match PolicyFile::new(file.clone()).fault() {
        Some(fault) => wrong(
            POLICY,
            fault,
            "Mend the file; every [[rule]] needs `operation` and `approval`. It is read at the next question, without a restart.",
        ),
        None if !file.exists() => fine(
            POLICY,
            "there is none: a person approves every effect that an agent asks for",
        ),
        None => fine(POLICY, "it can be read"),
    }
}

/// The store remembers that effects were decided about here, or the locks of their runners lie here; without their file
/// nobody knows which. A daemon does not start.
pub(super) fn lost(home: &Path) -> Option<Finding> {
    let was_used = home.join("effects").exists() || had_effects(&home.join("data.db")).is_some();
    // A person's word that it may begin anew.
    let is_given_up = home.join(crate::effects::ANEW).exists();
    let is_lost = bytes(home, "effects.db") == 0 && was_used && !is_given_up;
    is_lost.then(|| {
        wrong(
            "effects.db",
            "it is missing or empty, but this home has decided about effects".to_owned(),
            crate::effects::LOST_NEXT,
        )
    })
}

/// Another store than the newest one: the daemon starts with it, and decides about no effect.
fn older(home: &Path) -> Option<Finding> {
    let older = crate::effects::older(home).filter(|_| bytes(home, "effects.db") > 0)?;
    Some(wrong(OLDER, older, crate::effects::OLDER_NEXT))
}
