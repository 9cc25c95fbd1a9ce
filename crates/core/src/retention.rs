//! How old an outbox row may grow against a broker with a given memory (DESIGN §6).
//!
//! A daemon whose outbox could outlive the broker's dedupe memory refuses to run: that is the
//! window handshake. Below the floor the broker is refused already in [`crate::negotiate`].

use crate::limits::{
    DEDUPE_RETENTION_DAYS_MIN, MAX_AGE_HOURS_PERMANENT, MAX_AGE_HOURS_PERMANENT_CAP,
    SAFETY_MARGIN_HOURS_MIN,
};

/// How long the broker remembers ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DedupeMode {
    Permanent,
    RetentionScoped { days: u32 },
}

impl DedupeMode {
    /// For how long an id is kept; `None` for ever.
    pub fn days(self) -> Option<u32> {
        match self {
            Self::Permanent => None,
            Self::RetentionScoped { days } => Some(days),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    #[error(
        "the broker remembers ids for {days} days only; at least {DEDUPE_RETENTION_DAYS_MIN} are needed"
    )]
    BelowFloor { days: u32 },
    #[error(
        "outbox_max_age_above_dedupe_window: max_age_hours_override is {hours}, but the broker's memory allows at most {hours_max}"
    )]
    AboveWindow { hours: u32, hours_max: u32 },
}

/// The hours kept between a row's end and the end of the broker's memory: a tenth, at least a day.
fn margin_hours(days: u32) -> u32 {
    // ceil(days × 0.1 × 24) = ceil(12 × days / 5)
    days.saturating_mul(12)
        .div_ceil(5)
        .max(SAFETY_MARGIN_HOURS_MIN)
}

/// The age in hours at which a row dies.
pub fn max_age_hours(mode: DedupeMode, override_hours: Option<u32>) -> Result<u32, RetentionError> {
    let (derived, hours_max) = match mode {
        DedupeMode::Permanent => (MAX_AGE_HOURS_PERMANENT, MAX_AGE_HOURS_PERMANENT_CAP),
        DedupeMode::RetentionScoped { days } if days < DEDUPE_RETENTION_DAYS_MIN => {
            return Err(RetentionError::BelowFloor { days });
        }
        DedupeMode::RetentionScoped { days } => {
            let window = days.saturating_mul(24);
            (
                window - margin_hours(days),
                window - SAFETY_MARGIN_HOURS_MIN,
            )
        }
    };
    match override_hours {
        None => Ok(derived),
        Some(hours) if hours <= hours_max => Ok(hours),
        Some(hours) => Err(RetentionError::AboveWindow { hours, hours_max }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scoped(days: u32) -> DedupeMode {
        DedupeMode::RetentionScoped { days }
    }

    #[test]
    fn dr_08_max_age_follows_the_formula_for_every_window() {
        for days in DEDUPE_RETENTION_DAYS_MIN..=4000 {
            // The formula of the invariant in floating point, as an independent twin.
            let margin = f64::max(24.0, (2.4 * f64::from(days) - 1e-9).ceil());
            let expected = 24.0 * f64::from(days) - margin;
            let hours = max_age_hours(scoped(days), None).unwrap();
            assert!((f64::from(hours) - expected).abs() < 0.5, "{days} days");
            assert!(hours + 24 <= days * 24);
        }
        assert_eq!(max_age_hours(scoped(7), None), Ok(144));
        assert_eq!(max_age_hours(scoped(30), None), Ok(648));
        assert_eq!(max_age_hours(scoped(365), None), Ok(7884));
    }

    #[test]
    fn dr_09_below_the_floor_is_refused() {
        for days in 0..DEDUPE_RETENTION_DAYS_MIN {
            assert_eq!(
                max_age_hours(scoped(days), None),
                Err(RetentionError::BelowFloor { days })
            );
        }
    }

    #[test]
    fn dr_09_an_override_is_accepted_up_to_a_day_below_the_window() {
        for days in [7, 8, 30, 365] {
            let most = days * 24 - 24;
            assert_eq!(max_age_hours(scoped(days), Some(most)), Ok(most));
            assert!(max_age_hours(scoped(days), Some(most + 1)).is_err());
        }
        assert_eq!(max_age_hours(DedupeMode::Permanent, None), Ok(168));
        assert_eq!(max_age_hours(DedupeMode::Permanent, Some(720)), Ok(720));
        assert!(max_age_hours(DedupeMode::Permanent, Some(721)).is_err());
    }

    #[test]
    fn a_window_of_absurd_length_does_not_overflow() {
        assert!(max_age_hours(scoped(u32::MAX), None).is_ok());
    }
}
