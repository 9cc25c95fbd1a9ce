//! The steps of the pressure on the disk, as events.

use heddle_core::pressure::Pressure;
use heddle_wire::ipc::PressureEvent;

use crate::events::Event;
use crate::shared::Shared;

/// Every step is an event, up and down, so that whoever was told of the trouble is told of its end. A burst takes
/// several steps upwards between two looks: each is told.
pub(super) fn say(shared: &Shared, (before, level): (Pressure, Pressure), used: u64, limit: u64) {
    if before == Pressure::Fine {
        metrics::counter!("heddle_outbox_pressure_high_total").increment(1);
    }
    let passed = Pressure::ALL.into_iter();
    for step in passed.filter(|step| *step > before && *step < level) {
        say_step(shared, (before, step), used, limit);
    }
    say_step(shared, (before, level), used, limit);
}

fn say_step(shared: &Shared, (before, level): (Pressure, Pressure), used: u64, limit: u64) {
    let event = PressureEvent {
        level: level.as_str().to_owned(),
        used_bytes: used,
        limit_bytes: limit,
        detail: shared.disk.degraded().unwrap_or_default(),
    };
    let event = if level > before {
        Event::OutboxPressureHigh(event)
    } else {
        Event::OutboxPressureEased(event)
    };
    let name = event.name();
    tracing::warn!(level = level.as_str(), used, limit, "{name}");
    shared.events.publish(event);
}
