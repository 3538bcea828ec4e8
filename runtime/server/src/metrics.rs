//! What `/metrics` shows. All label sets are closed.

use crate::meter::Meter;
use frostline_sandbox::Usage;
use frostline_wire::Split;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

/// Counts seconds.
type SecondsCounter = Counter<f64, AtomicU64>;

/// Counters of one host.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) extractions: Family<ExtractionLabels, Counter>,
    /// By tenant; as many as have shown a token since the host started.
    pub(crate) tenants: Tally,
    pub(crate) samples: Family<SampleLabels, Counter>,
    pub(crate) answer_bytes: Counter,
    pub(crate) upload_bytes: Counter,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) call_seconds: Seconds,
    pub(crate) extraction_seconds: Seconds,
    guest_cpu: SecondsCounter,
    compiling: SecondsCounter,
    /// For `/v1/load`.
    pub(crate) meter: Meter,
}

/// What each tenant had of the host.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) extractions: Family<TenantLabels, Counter>,
    pub(crate) samples: Family<TenantLabels, Counter>,
    pub(crate) answer_bytes: Family<TenantLabels, Counter>,
    cpu_seconds: Family<TenantLabels, SecondsCounter>,
    compile_seconds: Family<TenantLabels, SecondsCounter>,
    known: Mutex<BTreeSet<String>>,
}

/// One tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TenantLabels {
    pub(crate) tenant: String,
}

impl TenantLabels {
    fn of(tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
        }
    }
}

impl Tally {
    /// Who extracted something, or had guest code run.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .into_iter()
    }

    /// Counts an extraction that ended.
    fn ended(&self, tenant: &str) {
        let labels = self.labels(tenant);
        self.extractions.get_or_create(&labels).inc();
    }

    /// Counts what a request used in the sandbox.
    fn used(&self, tenant: &str, cpu: f64, compiling: f64) {
        let labels = self.labels(tenant);
        self.cpu_seconds.get_or_create(&labels).inc_by(cpu);
        self.compile_seconds.get_or_create(&labels).inc_by(compiling);
    }

    /// Of a tenant that is known from now on.
    fn labels(&self, tenant: &str) -> TenantLabels {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(tenant.to_owned());
        TenantLabels::of(tenant)
    }

    /// Extractions, samples and bytes of a tenant so far.
    pub(crate) fn of(&self, tenant: &str) -> [u64; 3] {
        let labels = TenantLabels::of(tenant);
        [&self.extractions, &self.samples, &self.answer_bytes]
            .map(|family| family.get(&labels).map_or(0, |counter| counter.get()))
    }

    /// CPU time of the guest code that ran for a tenant so far.
    pub(crate) fn cpu_seconds_of(&self, tenant: &str) -> f64 {
        let labels = TenantLabels::of(tenant);
        let counter = self.cpu_seconds.get(&labels);
        counter.map_or(0.0, |counter| counter.get())
    }
}

/// A histogram of seconds, from 5 ms to 10 minutes.
pub(crate) struct Seconds(pub(crate) Histogram);

impl Default for Seconds {
    fn default() -> Self {
        Self(Histogram::new([
            0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
        ]))
    }
}

/// One route and the class of its answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// The route's pattern, never the path as sent.
    pub(crate) route: String,
    /// `2xx` to `5xx`.
    pub(crate) status: &'static str,
}

/// How extractions ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ExtractionLabels {
    pub(crate) split: SplitKind,
    pub(crate) outcome: Outcome,
}

/// Samples that became rows, and those that did not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SampleLabels {
    pub(crate) split: SplitKind,
    pub(crate) failed: bool,
}

/// What kind of split; cuts have too many names for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SplitKind {
    None,
    Input,
    Cut,
}

impl From<&Split> for SplitKind {
    fn from(split: &Split) -> Self {
        match split {
            Split::None => Self::None,
            Split::Input => Self::Input,
            Split::Cut(_) => Self::Cut,
        }
    }
}

impl EncodeLabelValue for SplitKind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let word = match self {
            Self::None => "none",
            Self::Input => "input",
            Self::Cut => "cut",
        };
        word.encode(encoder)
    }
}

/// How an admitted extraction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Done,
    Refused,
    Failed,
    Deadline,
    /// The client left, or took nothing for too long.
    ClientGone,
    HostStopped,
    /// The token, the tenant or the guest is not good any more.
    Dismissed,
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let word = match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Deadline => "deadline",
            Self::ClientGone => "client_gone",
            Self::HostStopped => "host_stopped",
            Self::Dismissed => "dismissed",
        };
        word.encode(encoder)
    }
}

/// What is so now.
pub(crate) struct Present {
    pub(crate) queued: usize,
    pub(crate) running: usize,
    pub(crate) lane_queue: usize,
    pub(crate) lane_samples: u64,
    /// Processes of lanes lost with a job in them.
    pub(crate) lane_crashes: u64,
}

impl Metrics {
    /// Counts a tenant's admitted extraction that ended.
    pub(crate) fn ended(&self, tenant: &str, split: SplitKind, outcome: Outcome) {
        self.tenants.ended(tenant);
        self.extractions
            .get_or_create(&ExtractionLabels { split, outcome })
            .inc();
    }

    /// Counts samples that were answered, by `good` rows and by `bad` ones.
    pub(crate) fn answered(&self, tenant: &str, split: SplitKind, good: u64, bad: u64) {
        for (failed, samples) in [(false, good), (true, bad)] {
            self.samples
                .get_or_create(&SampleLabels { split, failed })
                .inc_by(samples);
        }
        let labels = TenantLabels::of(tenant);
        self.tenants.samples.get_or_create(&labels).inc_by(good + bad);
        self.meter.count(good + bad);
    }

    /// What the bytes of a tenant's answer are counted in.
    pub(crate) fn answer_bytes_of(&self, tenant: &str) -> [Counter; 2] {
        let of_tenant = self.tenants.answer_bytes.get_or_create(&TenantLabels::of(tenant));
        [self.answer_bytes.clone(), of_tenant.clone()]
    }

    /// Counts what a tenant's request used in the sandbox.
    pub(crate) fn used(&self, tenant: &str, usage: &Usage) {
        let (cpu, compiling) = (usage.cpu.as_secs_f64(), usage.compiling.as_secs_f64());
        self.guest_cpu.inc_by(cpu);
        self.compiling.inc_by(compiling);
        self.tenants.used(tenant, cpu, compiling);
    }

    /// The Prometheus text for who may know of the host as a whole, but not who its tenants are.
    pub(crate) fn text(&self, present: &Present) -> Result<String, fmt::Error> {
        encoded(&self.registry(present))
    }

    /// The Prometheus text for whoever runs the host.
    pub(crate) fn text_by_tenant(&self, present: &Present) -> Result<String, fmt::Error> {
        let mut registry = self.registry(present);
        self.tenants.register(&mut registry);
        encoded(&registry)
    }

    fn registry(&self, present: &Present) -> Registry {
        let mut registry = Registry::with_prefix("frostline");
        self.register_work(&mut registry);
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "connections_refused",
            "Connections closed at once, since their network had all that one may have",
            self.connections_refused.clone(),
        );
        present.register(&mut registry);
        registry
    }

    fn register_work(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register(
            "extractions",
            "Admitted extractions by how they ended",
            self.extractions.clone(),
        );
        registry.register("samples", "Samples answered", self.samples.clone());
        let bytes = [
            ("answer", "Bytes of extractions sent", &self.answer_bytes),
            (
                "upload",
                "Bytes of guests and models received",
                &self.upload_bytes,
            ),
        ];
        for (name, help, counter) in bytes {
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        let seconds = [
            ("call", "Calls for one grant", &self.call_seconds),
            ("extraction", "Extractions", &self.extraction_seconds),
        ];
        for (name, help, histogram) in seconds {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.0.clone());
        }
        let seconds = [
            ("guest_cpu", GUEST_CPU, &self.guest_cpu),
            ("compile", COMPILING, &self.compiling),
        ];
        for (name, help, counter) in seconds {
            registry.register_with_unit(name, help, Unit::Seconds, counter.clone());
        }
    }
}

const GUEST_CPU: &str = "CPU time of guest code";
const COMPILING: &str = "Time that the compiler of guests worked";

impl Tally {
    fn register(&self, registry: &mut Registry) {
        let by_tenant = |help: &str| format!("{help}, by tenant");
        registry.register(
            "tenant_extractions",
            by_tenant("Extractions ended"),
            self.extractions.clone(),
        );
        registry.register(
            "tenant_samples",
            by_tenant("Samples answered"),
            self.samples.clone(),
        );
        registry.register_with_unit(
            "tenant_answer",
            by_tenant("Bytes of extractions sent"),
            Unit::Bytes,
            self.answer_bytes.clone(),
        );
        registry.register_with_unit(
            "tenant_guest_cpu",
            by_tenant(GUEST_CPU),
            Unit::Seconds,
            self.cpu_seconds.clone(),
        );
        registry.register_with_unit(
            "tenant_compile",
            by_tenant(COMPILING),
            Unit::Seconds,
            self.compile_seconds.clone(),
        );
    }
}

impl Present {
    fn register(&self, registry: &mut Registry) {
        let gauges = [
            ("extractions_queued", "Extractions waiting", self.queued),
            ("extractions_running", "Extractions running", self.running),
            ("lane_queue", "Batches waiting for a lane", self.lane_queue),
        ];
        for (name, help, value) in gauges {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        }
        let counters = [
            ("lane_samples", "Samples computed by the lanes", self.lane_samples),
            (
                "lane_crashes",
                "Processes of lanes lost during a run",
                self.lane_crashes,
            ),
        ];
        for (name, help, value) in counters {
            let counter = Counter::<u64>::default();
            counter.inc_by(value);
            registry.register(name, help, counter);
        }
    }
}

fn encoded(registry: &Registry) -> Result<String, fmt::Error> {
    let mut encoded = String::new();
    text::encode(&mut encoded, registry)?;
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PRESENT: Present = Present {
        queued: 2,
        running: 1,
        lane_queue: 0,
        lane_samples: 5,
        lane_crashes: 3,
    };

    /// Something of everything.
    fn busy() -> Metrics {
        let metrics = Metrics::default();
        let labels = SampleLabels {
            split: SplitKind::Cut,
            failed: false,
        };
        metrics.samples.get_or_create(&labels).inc_by(7);
        metrics.ended("acme", SplitKind::Input, Outcome::ClientGone);
        let usage = Usage {
            cpu: Duration::from_millis(1500),
            compiling: Duration::from_millis(250),
            ..Usage::default()
        };
        metrics.used("acme", &usage);
        metrics
    }

    #[test]
    fn what_is_counted_is_shown_in_base_units_and_lower_case() {
        let text = busy().text(&PRESENT).unwrap();
        for line in [
            "frostline_samples_total{split=\"cut\",failed=\"false\"} 7",
            "frostline_extractions_total{split=\"input\",outcome=\"client_gone\"} 1",
            "frostline_guest_cpu_seconds_total 1.5",
            "frostline_compile_seconds_total 0.25",
            "frostline_answer_bytes_total 0",
            "frostline_extractions_queued 2",
            "frostline_lane_crashes_total 3",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn tenants_are_named_to_whoever_runs_the_host_alone() {
        let metrics = busy();
        let text = metrics.text(&PRESENT).unwrap();
        assert!(!text.contains("acme") && !text.contains("tenant"), "{text}");
        let text = metrics.text_by_tenant(&PRESENT).unwrap();
        for line in [
            "frostline_tenant_extractions_total{tenant=\"acme\"} 1",
            "frostline_tenant_guest_cpu_seconds_total{tenant=\"acme\"} 1.5",
            "frostline_tenant_compile_seconds_total{tenant=\"acme\"} 0.25",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
