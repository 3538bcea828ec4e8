//! What `/metrics` shows. All label sets are closed.

use crate::meter::Meter;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

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
    /// For `/v1/load`.
    pub(crate) meter: Meter,
}

/// What each tenant had of the host.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) extractions: Family<TenantLabels, Counter>,
    pub(crate) samples: Family<TenantLabels, Counter>,
    pub(crate) answer_bytes: Family<TenantLabels, Counter>,
    pub(crate) cpu_millis: Family<TenantLabels, Counter>,
    known: Mutex<BTreeSet<String>>,
}

/// One tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TenantLabels {
    pub(crate) tenant: String,
}

impl Tally {
    /// Who asked for an extraction.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .into_iter()
    }

    /// Counts an extraction that ended.
    fn ended(&self, tenant: &str) {
        let labels = TenantLabels {
            tenant: tenant.to_owned(),
        };
        self.extractions.get_or_create(&labels).inc();
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(labels.tenant);
    }

    /// Extractions, samples, bytes and CPU time of a tenant so far.
    pub(crate) fn of(&self, tenant: &str) -> [u64; 4] {
        let labels = TenantLabels {
            tenant: tenant.to_owned(),
        };
        [
            &self.extractions,
            &self.samples,
            &self.answer_bytes,
            &self.cpu_millis,
        ]
        .map(|family| family.get(&labels).map_or(0, |counter| counter.get()))
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
    pub(crate) failed: Truth,
}

/// A label that is true or false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Truth {
    False,
    True,
}

/// What kind of split; cuts have too many names for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum SplitKind {
    None,
    Input,
    Cut,
}

/// How an admitted extraction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
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

    /// The Prometheus text.
    pub(crate) fn text(&self, present: &Present) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("frostline");
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register(
            "extractions",
            "Admitted extractions by how they ended",
            self.extractions.clone(),
        );
        registry.register("samples", "Samples answered", self.samples.clone());
        let tenants = [
            (
                "tenant_extractions",
                "Extractions ended",
                &self.tenants.extractions,
            ),
            ("tenant_samples", "Samples answered", &self.tenants.samples),
            (
                "tenant_answer_bytes",
                "Bytes of extractions sent",
                &self.tenants.answer_bytes,
            ),
            (
                "tenant_guest_cpu_millis",
                "Milliseconds of CPU time of guest code",
                &self.tenants.cpu_millis,
            ),
        ];
        for (name, help, family) in tenants {
            registry.register(name, format!("{help}, by tenant"), family.clone());
        }
        registry.register(
            "answer_bytes",
            "Bytes of extractions sent",
            self.answer_bytes.clone(),
        );
        registry.register(
            "upload_bytes",
            "Bytes of guests and models received",
            self.upload_bytes.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "connections_refused",
            "Connections closed at once, since their network had all that one may have",
            self.connections_refused.clone(),
        );
        let seconds = Unit::Seconds;
        registry.register_with_unit(
            "call",
            "Calls for one grant",
            seconds.clone(),
            self.call_seconds.0.clone(),
        );
        registry.register_with_unit(
            "extraction",
            "Extractions",
            seconds,
            self.extraction_seconds.0.clone(),
        );
        let gauge = |value: usize| {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            gauge
        };
        registry.register("extractions_queued", "Extractions waiting", gauge(present.queued));
        registry.register(
            "extractions_running",
            "Extractions running",
            gauge(present.running),
        );
        registry.register(
            "lane_queue",
            "Batches waiting for a lane",
            gauge(present.lane_queue),
        );
        let computed = Counter::<u64>::default();
        computed.inc_by(present.lane_samples);
        registry.register("lane_samples", "Samples computed by the lanes", computed);
        let crashed = Counter::<u64>::default();
        crashed.inc_by(present.lane_crashes);
        registry.register("lane_crashes", "Processes of lanes lost during a run", crashed);
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::default();
        let labels = SampleLabels {
            split: SplitKind::Cut,
            failed: Truth::False,
        };
        metrics.samples.get_or_create(&labels).inc_by(7);
        let text = metrics
            .text(&Present {
                queued: 2,
                running: 1,
                lane_queue: 0,
                lane_samples: 5,
                lane_crashes: 3,
            })
            .unwrap();
        assert!(
            text.contains("frostline_samples_total{split=\"Cut\",failed=\"False\"} 7"),
            "{text}"
        );
        assert!(text.contains("frostline_extractions_queued 2"), "{text}");
        assert!(text.contains("frostline_lane_crashes_total 3"), "{text}");
    }
}
