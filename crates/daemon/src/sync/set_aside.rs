//! Words about ops that were set aside: those of others, and this home's own, which only a repair helps with.

use crate::upkeep::SENSELESS_NEXT;

/// Of all that were set aside, `own` were made by this home while its clock was far ahead.
pub(crate) fn set_aside(own: u64, all: u64) -> String {
    let others = all.saturating_sub(own);
    let own_words = match own {
        1 => "1 op of this home's own was set aside by every home: it was written while this home's clock was far ahead".to_owned(),
        own => format!("{own} ops of this home's own were set aside by every home: they were written while this home's clock was far ahead"),
    };
    let of_others = match others {
        1 => "1 op from elsewhere was set aside".to_owned(),
        others => format!("{others} ops from elsewhere were set aside"),
    };
    match (own, others) {
        (0, _) => of_others,
        (_, 0) => own_words,
        _ => format!("{own_words}; {of_others}"),
    }
}

/// What helps.
pub(crate) fn set_aside_next(own: u64, all: u64) -> String {
    let of_others = "Update Heddle if they are of a younger version; `heddle doctor --retry ID` looks again, `heddle doctor --drop ID` forgets one. \
        One whose stamp is too far ahead is taken by no home: whoever sent it runs `heddle doctor --repair` and writes it anew.";
    match (own, all.saturating_sub(own)) {
        (0, _) => of_others.to_owned(),
        (_, 0) => format!("{SENSELESS_NEXT} Write what it names anew then."),
        _ => format!("{SENSELESS_NEXT} Write what it names anew then. Of the others: {of_others}"),
    }
}
