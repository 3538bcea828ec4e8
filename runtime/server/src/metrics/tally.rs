use super::labels::TenantLabels;
use frostline_batching::Charge;
use frostline_wire::Usage;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

pub(super) type SecondsCounter = Counter<f64, AtomicU64>;

// Help texts of metrics that exist for the host and by tenant.
pub(super) const GUEST_CPU: &str = "CPU time of guest code";
pub(super) const COMPILING: &str = "Time spent compiling guests and checking models";

#[derive(Default)]
pub(crate) struct TenantCounters {
    extractions: Family<TenantLabels, Counter>,
    failed_extractions: Family<TenantLabels, Counter>,
    samples: Family<TenantLabels, Counter>,
    read_bytes: Family<TenantLabels, Counter>,
    sent_bytes: Family<TenantLabels, Counter>,
    probes: Family<TenantLabels, Counter>,
    listings: Family<TenantLabels, Counter>,
    cpu_seconds: Family<TenantLabels, SecondsCounter>,
    compile_seconds: Family<TenantLabels, SecondsCounter>,
    decode_cpu_seconds: Family<TenantLabels, SecondsCounter>,
    blocking_cpu_seconds: Family<TenantLabels, SecondsCounter>,
    busy_answers: Family<TenantLabels, Counter>,
    over_budget: Family<TenantLabels, Counter>,
    names: Mutex<BTreeSet<String>>,
}

impl TenantCounters {
    /// Returns the names of tenants with a counted event. Answered samples and 429 responses alone do not add
    /// a tenant.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.names.lock().clone().into_iter()
    }

    /// Counts a completed extraction.
    pub(super) fn count_extraction(&self, tenant: &str, failed: bool) {
        let labels = self.labels(tenant);
        self.extractions.get_or_create(&labels).inc();
        self.failed_extractions
            .get_or_create(&labels)
            .inc_by(u64::from(failed));
    }

    /// Counts answered samples.
    pub(super) fn count_samples(&self, tenant: &str, samples: u64) {
        self.samples
            .get_or_create(&TenantLabels::new(tenant))
            .inc_by(samples);
    }

    /// Counts a link measurement.
    pub(crate) fn count_probe(&self, tenant: &str) {
        self.probes.get_or_create(&self.labels(tenant)).inc();
    }

    /// Counts a page of an object listing.
    pub(crate) fn count_listing(&self, tenant: &str) {
        self.listings.get_or_create(&self.labels(tenant)).inc();
    }

    pub(crate) fn sent_bytes_of(&self, tenant: &str) -> Counter {
        self.sent_bytes.get_or_create(&self.labels(tenant)).clone()
    }

    pub(super) fn read_bytes_of(&self, tenant: &str) -> Counter {
        self.read_bytes.get_or_create(&self.labels(tenant)).clone()
    }

    /// Returns the counters for guest CPU time and compile time of a tenant.
    pub(super) fn spent_of(&self, tenant: &str) -> [SecondsCounter; 2] {
        let labels = self.labels(tenant);
        [&self.cpu_seconds, &self.compile_seconds].map(|family| family.get_or_create(&labels).clone())
    }

    /// Returns the account for decoding threads, which also encode rows.
    pub(crate) fn decoding_of(&self, tenant: &str) -> Charge {
        self.charge(&self.decode_cpu_seconds, tenant)
    }

    /// Returns the account for blocking threads.
    pub(crate) fn blocking_of(&self, tenant: &str) -> Charge {
        self.charge(&self.blocking_cpu_seconds, tenant)
    }

    fn charge(&self, family: &Family<TenantLabels, SecondsCounter>, tenant: &str) -> Charge {
        let counter = family.get_or_create(&self.labels(tenant)).clone();
        Charge::new(move |spent| {
            counter.inc_by(spent.as_secs_f64());
        })
    }

    /// Counts a response with status 429.
    pub(crate) fn count_busy(&self, tenant: &str) {
        self.busy_answers.get_or_create(&TenantLabels::new(tenant)).inc();
    }

    /// Counts a request that was refused or ended because a budget of the day is used up.
    pub(crate) fn count_over_budget(&self, tenant: &str) {
        self.over_budget.get_or_create(&TenantLabels::new(tenant)).inc();
    }

    /// Returns the labels of a tenant and adds it to the known names.
    fn labels(&self, tenant: &str) -> TenantLabels {
        self.names.lock().insert(tenant.to_owned());
        TenantLabels::new(tenant)
    }

    /// Returns the usage of a tenant since the host started. Device time and stored bytes are counted
    /// elsewhere.
    pub(crate) fn usage(&self, tenant: &str) -> Usage {
        let labels = TenantLabels::new(tenant);
        Usage {
            guest_cpu_seconds: self.cpu_seconds.get(&labels).map_or(0.0, |counter| counter.get()),
            read_bytes: count(&self.read_bytes, &labels),
            sent_bytes: count(&self.sent_bytes, &labels),
            images: count(&self.samples, &labels),
            extractions: count(&self.extractions, &labels),
            failed_extractions: count(&self.failed_extractions, &labels),
            probes: count(&self.probes, &labels),
            listings: count(&self.listings, &labels),
            ..Usage::default()
        }
    }

    /// Registers the counters of all tenants.
    pub(super) fn register(&self, registry: &mut Registry) {
        let counts = [
            ("extractions", "Extractions ended", &self.extractions),
            (
                "failed_extractions",
                "Extractions without a complete answer",
                &self.failed_extractions,
            ),
            ("samples", "Samples answered", &self.samples),
            ("probes", "Measurements of the link", &self.probes),
            ("listings", "Pages of listings", &self.listings),
            ("busy_answers", "Requests answered 429", &self.busy_answers),
            (
                "over_budget",
                "Requests refused or ended because a budget of the day is used up",
                &self.over_budget,
            ),
        ];
        for (name, help, counter) in counts {
            let name = format!("tenant_{name}");
            registry.register(name, format!("{help}, by tenant"), counter.clone());
        }
        let bytes = [
            (
                "read",
                "Bytes of objects and listings read from stores",
                &self.read_bytes,
            ),
            ("sent", "Bytes of answers sent", &self.sent_bytes),
        ];
        for (name, help, counter) in bytes {
            let name = format!("tenant_{name}");
            let help = format!("{help}, by tenant");
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        let seconds = [
            ("guest_cpu", GUEST_CPU, &self.cpu_seconds),
            ("compile", COMPILING, &self.compile_seconds),
            (
                "decode_cpu",
                "CPU time of decoding images and encoding rows",
                &self.decode_cpu_seconds,
            ),
            (
                "blocking_cpu",
                "CPU time of blocking threads",
                &self.blocking_cpu_seconds,
            ),
        ];
        for (name, help, counter) in seconds {
            let name = format!("tenant_{name}");
            let help = format!("{help}, by tenant");
            registry.register_with_unit(name, help, Unit::Seconds, counter.clone());
        }
    }
}

fn count(family: &Family<TenantLabels, Counter>, labels: &TenantLabels) -> u64 {
    family.get(labels).map_or(0, |counter| counter.get())
}
