use super::labels::TenantLabel;
use frostline_batching::Charge;
use frostline_wire::Usage;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

pub(super) type SecondsCounter = Counter<f64, AtomicU64>;

// Help texts of metrics that exist for the host and by tenant.
pub(super) const GUEST_CPU: &str = "CPU time of guest code";
pub(super) const COMPILING: &str = "Time spent compiling guests and checking models";
pub(super) const READ_BYTES: &str = "Bytes of objects and listings read from stores";

#[derive(Default)]
pub(crate) struct TenantCounters {
    extractions: Family<TenantLabel, Counter>,
    failed_extractions: Family<TenantLabel, Counter>,
    samples: Family<TenantLabel, Counter>,
    read_bytes: Family<TenantLabel, Counter>,
    sent_bytes: Family<TenantLabel, Counter>,
    probes: Family<TenantLabel, Counter>,
    listings: Family<TenantLabel, Counter>,
    cpu_seconds: Family<TenantLabel, SecondsCounter>,
    compile_seconds: Family<TenantLabel, SecondsCounter>,
    decode_cpu_seconds: Family<TenantLabel, SecondsCounter>,
    blocking_cpu_seconds: Family<TenantLabel, SecondsCounter>,
    busy_answers: Family<TenantLabel, Counter>,
    over_budget: Family<TenantLabel, Counter>,
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
        self.samples.get_or_create(&label(tenant)).inc_by(samples);
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

    fn charge(&self, family: &Family<TenantLabel, SecondsCounter>, tenant: &str) -> Charge {
        let counter = family.get_or_create(&self.labels(tenant)).clone();
        Charge::new(move |spent| {
            counter.inc_by(spent.as_secs_f64());
        })
    }

    /// Counts a response with status 429.
    pub(crate) fn count_busy(&self, tenant: &str) {
        self.busy_answers.get_or_create(&label(tenant)).inc();
    }

    /// Counts a request that was refused or ended because a budget of the day is used up.
    pub(crate) fn count_over_budget(&self, tenant: &str) {
        self.over_budget.get_or_create(&label(tenant)).inc();
    }

    /// Returns the labels of a tenant and adds it to the known names.
    fn labels(&self, tenant: &str) -> TenantLabel {
        self.names.lock().insert(tenant.to_owned());
        label(tenant)
    }

    /// Returns the usage of a tenant since the host started. Device time and stored bytes are counted
    /// elsewhere.
    pub(crate) fn usage(&self, tenant: &str) -> Usage {
        let labels = label(tenant);
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
        register! { registry:
            "tenant_extractions", "Extractions ended, by tenant", self.extractions;
            "tenant_failed_extractions", "Extractions without a complete answer, by tenant", self.failed_extractions;
            "tenant_samples", "Samples answered, by tenant", self.samples;
            "tenant_probes", "Measurements of the link, by tenant", self.probes;
            "tenant_listings", "Pages of listings, by tenant", self.listings;
            "tenant_busy_answers", "Requests answered 429, by tenant", self.busy_answers;
            "tenant_over_budget", "Requests refused or ended because a budget of the day is used up, by tenant", self.over_budget;
            "tenant_read" Bytes, format!("{READ_BYTES}, by tenant"), self.read_bytes;
            "tenant_sent" Bytes, "Bytes of answers sent, by tenant", self.sent_bytes;
            "tenant_guest_cpu" Seconds, format!("{GUEST_CPU}, by tenant"), self.cpu_seconds;
            "tenant_compile" Seconds, format!("{COMPILING}, by tenant"), self.compile_seconds;
            "tenant_decode_cpu" Seconds, "CPU time of decoding images and encoding rows, by tenant", self.decode_cpu_seconds;
            "tenant_blocking_cpu" Seconds, "CPU time of blocking threads, by tenant", self.blocking_cpu_seconds;
        }
    }
}

fn count(family: &Family<TenantLabel, Counter>, labels: &TenantLabel) -> u64 {
    family.get(labels).map_or(0, |counter| counter.get())
}

fn label(tenant: &str) -> TenantLabel {
    [("tenant", tenant.to_owned())]
}
