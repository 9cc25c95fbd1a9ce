//! Every metric of the process: its name, kind, labels and meaning in one table.
//!
//! The places that count name their metric by a literal, which costs no allocation; a test walks the
//! sources and compares them with this table and with `docs/METRICS.md`. The broker's metrics stand
//! here too, because the embedded broker shows them on the same page.

pub(crate) mod file;
mod gauges;
mod table;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub(crate) use gauges::observe;
pub(crate) use table::{Kind, METRICS, Metric};

/// From a commit on a fast disk to a time-out, in seconds.
const WORK_SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];
/// From a message handed over at once to one that waited for its broker for a week.
const WAY_SECONDS: [f64; 14] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0, 60.0, 600.0, 3_600.0, 604_800.0,
];

/// The recorder of this process, with every metric described and every counter at zero: a
/// counter that appears only with its first event has no rate for that event.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    install_those(|_| true)
}

fn install_those(is_shown: fn(&Metric) -> bool) -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new().set_buckets(&WORK_SECONDS)?;
    for metric in METRICS.iter().filter(|m| m.kind == Kind::WayHistogram) {
        let name = Matcher::Full(metric.name.to_owned());
        builder = builder.set_buckets_for_metric(name, &WAY_SECONDS)?;
    }
    let handle = builder.install_recorder()?;
    for metric in METRICS.iter().filter(|metric| is_shown(metric)) {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram | Kind::WayHistogram => {
                metrics::describe_histogram!(metric.name, metric.help);
            }
        }
        match metric.kind {
            Kind::Counter if metric.labels.is_empty() => {
                metrics::counter!(metric.name).increment(0);
            }
            Kind::Counter => {
                for (label, value) in metric
                    .labels
                    .iter()
                    .flat_map(|label| metric.values.iter().map(move |value| (*label, *value)))
                {
                    metrics::counter!(metric.name, label => value).increment(0);
                }
            }
            Kind::Gauge if metric.labels.is_empty() => metrics::gauge!(metric.name).set(0.0),
            // Registered without a sample: its empty buckets are shown.
            Kind::Histogram | Kind::WayHistogram => drop(metrics::histogram!(metric.name)),
            // Set at every look, with the labels that there are then.
            Kind::Gauge => {}
        }
    }
    Ok(handle)
}

/// The figures of a process that is no daemon: a broker of its own.
pub struct MetricsPage(PrometheusHandle);

impl MetricsPage {
    /// Once in a process. What only a daemon does is not shown at zero.
    pub fn install() -> Result<Self, String> {
        install_those(Metric::is_of_brokers)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// As Prometheus reads it.
    pub fn render(&self) -> String {
        self.0.run_upkeep();
        self.0.render()
    }
}

/// The time between two wall-clock moments in seconds; a clock that was set back makes it zero.
pub(crate) fn seconds_between(
    from: heddle_core::clock::WallMs,
    to: heddle_core::clock::WallMs,
) -> f64 {
    let ms = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
    std::time::Duration::from_millis(ms).as_secs_f64()
}
