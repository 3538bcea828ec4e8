//! What `/metrics` shows: what was counted, and what is so when it is asked for.

use super::counters::Metrics;
use super::memory::MemoryNow;
use frostline_engine::LaneStats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What is so now, and counted elsewhere.
pub(crate) struct Present {
    pub(crate) queued: usize,
    pub(crate) running: usize,
    pub(crate) lanes: LaneStats,
    pub(crate) memory: MemoryNow,
}

/// See the module.
pub(crate) struct Exposition {
    host: Registry,
    tenants: Registry,
}

impl Exposition {
    /// Shows `metrics` and what `present` says.
    pub(crate) fn new(metrics: &Metrics, present: impl Fn() -> Present + Send + Sync + 'static) -> Self {
        let [mut host, mut tenants] = [(); 2].map(|()| Registry::with_prefix("frostline"));
        metrics.register(&mut host);
        let present = Arc::new(present);
        host.register_collector(Box::new(Now(Arc::clone(&present))));
        metrics.tenants.register(&mut tenants);
        tenants.register_collector(Box::new(OfTenants(present)));
        Self { host, tenants }
    }

    /// For who may know of the host as a whole, but not who its tenants are.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        encoded(&[&self.host])
    }

    /// For whoever runs the host.
    pub(crate) fn text_by_tenant(&self) -> Result<String, fmt::Error> {
        encoded(&[&self.host, &self.tenants])
    }
}

fn encoded(registries: &[&Registry]) -> Result<String, fmt::Error> {
    let mut encoded = String::new();
    for registry in registries {
        text::encode_registry(&mut encoded, registry)?;
    }
    text::encode_eof(&mut encoded)?;
    Ok(encoded)
}

/// Asks what is so at every scrape.
struct Now<F>(Arc<F>);

/// The same of what each tenant has.
struct OfTenants<F>(Arc<F>);

impl<F> fmt::Debug for Now<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Now")
    }
}

impl<F: Fn() -> Present + Send + Sync + 'static> Collector for Now<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let present = (self.0)();
        let mut show = |name, help, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        let lanes = &present.lanes;
        let of_device = device_gauges(lanes).into_iter().flatten();
        for (name, help, value) in gauges(&present).into_iter().chain(of_device) {
            show(name, help, &ConstGauge::new(value))?;
        }
        let help =
            "What 95 % of predictions of a run's memory were off by at most, as a part of what it took.";
        if let Some(error) = lanes.memory_error {
            show("lane_memory_error_p95", help, &ConstGauge::new(error))?;
        }
        for (name, help, value) in counters(lanes) {
            show(name, help, &ConstCounter::new(value))?;
        }
        show(
            "memory_waiting",
            "Who waits for memory.",
            &ConstGauge::new(present.memory.waiting),
        )?;
        let busy: f64 = lanes.busy.iter().map(Duration::as_secs_f64).sum();
        let help = "Time that lanes have worked, all together, with what they run now";
        let seconds = Some(&Unit::Seconds);
        let whole = encoder.encode_descriptor("lane_busy", help, seconds, MetricType::Counter)?;
        ConstCounter::new(busy).encode(whole)?;
        let MemoryNow { budget, held, .. } = &present.memory;
        let help = "Memory that host and lanes may hold";
        let whole =
            encoder.encode_descriptor("memory_budget", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        ConstGauge::new(*budget).encode(whole)?;
        let all = held.iter().map(|(kind, bytes)| ([("kind", *kind)], *bytes));
        bytes_by(
            &mut encoder,
            "memory_held",
            "Memory that is reserved, and the base that is not",
            all,
        )
    }
}

impl<F> fmt::Debug for OfTenants<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfTenants")
    }
}

impl<F: Fn() -> Present + Send + Sync + 'static> Collector for OfTenants<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Present { lanes, memory, .. } = (self.0)();
        let help = "Time of lanes that tenants used, of those that used any lately";
        let seconds = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("tenant_device", help, seconds, MetricType::Counter)?;
        for (name, time) in &lanes.used {
            let label = [("tenant", name.as_str())];
            ConstCounter::new(time.as_secs_f64()).encode(family.encode_family(&label)?)?;
        }
        let help = "The longest that work waited for a lane in the last minute or two, by tenant";
        let mut family =
            encoder.encode_descriptor("tenant_longest_wait", help, seconds, MetricType::Gauge)?;
        for (name, waited) in &lanes.waited {
            let label = [("tenant", name.as_str())];
            ConstGauge::new(waited.as_secs_f64()).encode(family.encode_family(&label)?)?;
        }
        let help = "Rows of tenants that wait for a lane, of those that have any";
        let mut family = encoder.encode_descriptor("tenant_lane_rows", help, None, MetricType::Gauge)?;
        for (name, rows) in &lanes.waiting {
            let label = [("tenant", name.as_str())];
            ConstGauge::new(*rows as u64).encode(family.encode_family(&label)?)?;
        }
        let tenants = memory.tenants.iter();
        let tenants = tenants.map(|(name, bytes)| ([("tenant", name.as_str())], *bytes));
        bytes_by(
            &mut encoder,
            "tenant_memory",
            "Memory that is reserved, by tenant",
            tenants,
        )
    }
}

/// A name, what it is, and how much.
type Shown = (&'static str, &'static str, u64);

/// Only of lanes whose device has memory of its own.
fn device_gauges(lanes: &LaneStats) -> Option<[Shown; 2]> {
    Some([
        (
            "device_memory_budget_bytes",
            "Memory of the GPU that lanes may hold.",
            lanes.device_budget?,
        ),
        (
            "device_memory_held_bytes",
            "Memory of the GPU that is reserved for lanes and their runs.",
            lanes.memory_reserved,
        ),
    ])
}

fn gauges(present: &Present) -> [Shown; 5] {
    let lanes = &present.lanes;
    [
        (
            "extractions_queued",
            "Extractions waiting.",
            present.queued as u64,
        ),
        (
            "extractions_running",
            "Extractions running.",
            present.running as u64,
        ),
        ("lane_queue", "Batches waiting for a lane.", lanes.queued as u64),
        (
            "lane_memory_held_bytes",
            "Memory that lanes hold between runs.",
            lanes.memory_held,
        ),
        (
            "lane_memory_reserved_bytes",
            "Memory reserved for lanes and their runs.",
            lanes.memory_reserved,
        ),
    ]
}

fn counters(lanes: &LaneStats) -> [Shown; 10] {
    [
        (
            "lane_samples",
            "Samples computed by the lanes.",
            lanes.samples_done,
        ),
        ("lane_runs", "Runs of the lanes that ended well.", lanes.runs),
        ("lane_rows", "Rows in those runs.", lanes.rows),
        (
            "lane_runs_joined",
            "Runs with rows of several batches.",
            lanes.runs_joined,
        ),
        (
            "lane_out_of_memory",
            "Runs tried again with fewer rows.",
            lanes.out_of_memory,
        ),
        (
            "lane_memory_misses",
            "Runs that took more memory than predicted.",
            lanes.memory_misses,
        ),
        ("lane_sessions_opened", "Sessions opened.", lanes.sessions_opened),
        (
            "lane_sessions_closed",
            "Sessions closed for others.",
            lanes.sessions_closed,
        ),
        (
            "lane_crashes",
            "Processes of lanes lost during a run.",
            lanes.crashes,
        ),
        (
            "lane_quarantines",
            "Models not run any more as they crashed processes.",
            lanes.quarantines,
        ),
    ]
}

/// Shows bytes by one label.
fn bytes_by<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'a str, &'a str); 1], u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
    for (label, bytes) in values {
        ConstGauge::new(bytes).encode(family.encode_family(&label)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Outcome, SplitKind};
    use frostline_sandbox::Usage;

    fn present() -> Present {
        Present {
            queued: 2,
            running: 1,
            lanes: LaneStats {
                samples_done: 5,
                crashes: 3,
                device_budget: Some(70),
                memory_reserved: 60,
                used: vec![("acme".to_owned(), Duration::from_millis(2500))],
                waited: vec![("acme".to_owned(), Duration::from_millis(500))],
                waiting: vec![("acme".to_owned(), 7)],
                busy: vec![Duration::from_millis(500); 2],
                ..LaneStats::default()
            },
            memory: MemoryNow {
                budget: 100,
                held: vec![("base", 10), ("grant", 30)],
                waiting: 1,
                tenants: vec![("acme".to_owned(), 30)],
            },
        }
    }

    /// Something of everything.
    fn busy() -> Exposition {
        let metrics = Metrics::default();
        metrics.answered("acme", SplitKind::Cut, 7, 0);
        metrics.ended("acme", SplitKind::Input, Outcome::ClientGone);
        let usage = Usage {
            cpu: Duration::from_millis(1500),
            compiling: Duration::from_millis(250),
            ..Usage::default()
        };
        metrics.used("acme", &usage);
        Exposition::new(&metrics, present)
    }

    #[test]
    fn what_is_counted_is_shown_in_base_units_and_lower_case() {
        let text = busy().text().unwrap();
        for line in [
            "frostline_samples_total{split=\"cut\",failed=\"false\"} 7",
            "frostline_extractions_total{split=\"input\",outcome=\"client_gone\"} 1",
            "frostline_guest_cpu_seconds_total 1.5",
            "frostline_compile_seconds_total 0.25",
            "frostline_answer_bytes_total 0",
            "frostline_extractions_queued 2",
            "frostline_lane_crashes_total 3",
            "frostline_lane_busy_seconds_total 1.0",
            "frostline_memory_budget_bytes 100",
            "frostline_device_memory_budget_bytes 70",
            "frostline_device_memory_held_bytes 60",
            "frostline_memory_held_bytes{kind=\"grant\"} 30",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn tenants_are_named_to_whoever_runs_the_host_alone() {
        let exposition = busy();
        let text = exposition.text().unwrap();
        assert!(!text.contains("acme") && !text.contains("tenant"), "{text}");
        let text = exposition.text_by_tenant().unwrap();
        for line in [
            "frostline_tenant_extractions_total{tenant=\"acme\"} 1",
            "frostline_tenant_memory_bytes{tenant=\"acme\"} 30",
            "frostline_tenant_guest_cpu_seconds_total{tenant=\"acme\"} 1.5",
            "frostline_tenant_compile_seconds_total{tenant=\"acme\"} 0.25",
            "frostline_tenant_device_seconds_total{tenant=\"acme\"} 2.5",
            "frostline_tenant_longest_wait_seconds{tenant=\"acme\"} 0.5",
            "frostline_tenant_lane_rows{tenant=\"acme\"} 7",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
