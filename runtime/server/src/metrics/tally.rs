use super::labels::TenantLabels;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

/// Counts seconds.
pub(super) type SecondsCounter = Counter<f64, AtomicU64>;

// Help of what is shown of the host and by tenant.
pub(super) const GUEST_CPU: &str = "CPU time of guest code";
pub(super) const COMPILING: &str = "Time spent compiling guests and checking models";

/// What each tenant had of the host.
#[derive(Default)]
pub(crate) struct TenantCounters {
    extractions: Family<TenantLabels, Counter>,
    samples: Family<TenantLabels, Counter>,
    answer_bytes: Family<TenantLabels, Counter>,
    cpu_seconds: Family<TenantLabels, SecondsCounter>,
    compile_seconds: Family<TenantLabels, SecondsCounter>,
    busy_answers: Family<TenantLabels, Counter>,
    names: Mutex<BTreeSet<String>>,
}

impl TenantCounters {
    /// Who extracted something, or had guest code run.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.names.lock().clone().into_iter()
    }

    /// Counts an extraction that ended.
    pub(super) fn count_extraction(&self, tenant: &str) {
        let labels = self.labels(tenant);
        self.extractions.get_or_create(&labels).inc();
    }

    /// Counts samples that were answered.
    pub(super) fn count_samples(&self, tenant: &str, samples: u64) {
        self.samples
            .get_or_create(&TenantLabels::new(tenant))
            .inc_by(samples);
    }

    /// What the bytes of a tenant's answers are counted in.
    pub(super) fn answer_bytes_of(&self, tenant: &str) -> Counter {
        self.answer_bytes
            .get_or_create(&TenantLabels::new(tenant))
            .clone()
    }

    /// Counts what a request used in the sandbox.
    pub(super) fn count_usage(&self, tenant: &str, cpu: f64, compiling: f64) {
        let labels = self.labels(tenant);
        self.cpu_seconds.get_or_create(&labels).inc_by(cpu);
        self.compile_seconds.get_or_create(&labels).inc_by(compiling);
    }

    /// Counts a request that was answered 429.
    pub(crate) fn count_busy(&self, tenant: &str) {
        self.busy_answers.get_or_create(&TenantLabels::new(tenant)).inc();
    }

    /// Of a tenant that is known from now on.
    fn labels(&self, tenant: &str) -> TenantLabels {
        self.names.lock().insert(tenant.to_owned());
        TenantLabels::new(tenant)
    }

    /// Extractions, samples and bytes of a tenant so far.
    pub(crate) fn totals(&self, tenant: &str) -> [u64; 3] {
        let labels = TenantLabels::new(tenant);
        [&self.extractions, &self.samples, &self.answer_bytes]
            .map(|family| family.get(&labels).map_or(0, |counter| counter.get()))
    }

    /// CPU time of the guest code that ran for a tenant so far.
    pub(crate) fn cpu_seconds_of(&self, tenant: &str) -> f64 {
        let labels = TenantLabels::new(tenant);
        let counter = self.cpu_seconds.get(&labels);
        counter.map_or(0.0, |counter| counter.get())
    }

    /// Shows it.
    pub(super) fn register(&self, registry: &mut Registry) {
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
        registry.register(
            "tenant_busy_answers",
            by_tenant("Requests answered 429"),
            self.busy_answers.clone(),
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
