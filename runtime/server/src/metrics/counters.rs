use super::labels::{Labels, Outcome, RequestLabels, SplitKind};
use super::meter::RateMeter;
use super::queues::{QueueWaits, histogram};
use super::stores::StoreErrors;
use super::tally::{COMPILING, GUEST_CPU, READ_BYTES, SecondsCounter, TenantCounters};
use frostline_sandbox::Spent;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;

/// Counters of a host.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    /// 1 if the last reload of the configuration failed.
    pub(crate) reload_failed: Gauge,
    /// Requests with status 429.
    pub(crate) busy_answers: Counter,
    extractions: Family<Labels<2>, Counter>,
    /// Counters by tenant. A tenant appears with the first counted event.
    pub(crate) tenants: TenantCounters,
    samples: Family<Labels<2>, Counter>,
    answer_bytes: Counter,
    pub(crate) upload_bytes: Counter,
    pub(crate) connections: Gauge,
    /// Requests refused because of their token.
    invalid_tokens: Family<Labels<1>, Counter>,
    /// Free bytes and size of the file systems of the host's folders.
    disks: [Family<Labels<1>, Gauge>; 2],
    pub(crate) connections_refused: Counter,
    /// Connections closed because the client read an answer too slowly.
    pub(crate) slow_readers: Counter,
    /// Refusals without a message because memory was short.
    pub(crate) unexplained_refusals: Counter,
    /// Guest calls repeated with half the samples after they exceeded a memory limit.
    pub(crate) calls_halved: Counter,
    pub(crate) call_seconds: SecondsHistogram,
    pub(crate) extraction_seconds: SecondsHistogram,
    pub(crate) queue_waits: QueueWaits,
    pub(crate) store_errors: StoreErrors,
    pub(crate) read_seconds: SecondsHistogram,
    read_bytes: Counter,
    decode_seconds: SecondsHistogram,
    guest_cpu: SecondsCounter,
    compiling: SecondsCounter,
    /// Rate of samples for `/v1/load`.
    pub(crate) meter: RateMeter,
}

/// Histogram of durations in seconds.
#[derive(Clone)]
pub(crate) struct SecondsHistogram(Histogram);

impl Default for SecondsHistogram {
    fn default() -> Self {
        Self(histogram())
    }
}

impl SecondsHistogram {
    pub(crate) fn observe(&self, took: Duration) {
        self.0.observe(took.as_secs_f64());
    }
}

impl Metrics {
    /// Counts an admitted extraction that has ended.
    pub(crate) fn count_extraction(&self, tenant: &str, split: SplitKind, outcome: Outcome) {
        self.tenants.count_extraction(tenant, outcome != Outcome::Done);
        self.extractions
            .get_or_create(&[("split", split.into()), ("outcome", outcome.into())])
            .inc();
    }

    /// Counts answered samples. `good` samples became rows, and `bad` samples failed.
    pub(crate) fn count_samples(&self, tenant: &str, split: SplitKind, good: u64, bad: u64) {
        let split = split.into();
        for (failed, samples) in [("false", good), ("true", bad)] {
            self.samples
                .get_or_create(&[("split", split), ("failed", failed)])
                .inc_by(samples);
        }
        self.tenants.count_samples(tenant, good + bad);
        self.meter.count(good + bad);
    }

    /// Counts a request with an invalid token at `port`, which is `listen` or `admin_listen`.
    pub(crate) fn count_invalid_token(&self, port: &'static str) {
        self.invalid_tokens.get_or_create(&[("port", port)]).inc();
    }

    /// Records the free bytes and the size of the file system of `folder`, which is `local` or `state`.
    pub(crate) fn set_disk(&self, folder: &'static str, bytes: [u64; 2]) {
        for (family, bytes) in self.disks.iter().zip(bytes) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            family.get_or_create(&[("folder", folder)]).set(bytes);
        }
    }

    /// Returns the counters for bytes that are read for a tenant.
    pub(crate) fn read_bytes_of(&self, tenant: &str) -> [Counter; 2] {
        [self.read_bytes.clone(), self.tenants.read_bytes_of(tenant)]
    }

    /// Returns the callback that records how long an image took to decode.
    pub(crate) fn on_decoded(&self) -> Arc<dyn Fn(Duration) + Send + Sync> {
        let seconds = self.decode_seconds.clone();
        Arc::new(move |took| seconds.observe(took))
    }

    /// Returns the counter for bytes of extraction answers.
    pub(crate) fn answer_bytes(&self) -> Counter {
        self.answer_bytes.clone()
    }

    /// Returns the callback that counts the CPU and compile time of a tenant's requests.
    pub(crate) fn on_spent(&self, tenant: &str) -> impl Fn(Spent) + Send + Sync + 'static {
        let [tenant_cpu, tenant_compiling] = self.tenants.spent_of(tenant);
        let cpu = [self.guest_cpu.clone(), tenant_cpu];
        let compiling = [self.compiling.clone(), tenant_compiling];
        move |spent| {
            let (counters, time) = match spent {
                Spent::Cpu(time) => (&cpu, time),
                Spent::Compiling(time) => (&compiling, time),
            };
            for counter in counters {
                counter.inc_by(time.as_secs_f64());
            }
        }
    }

    /// Registers all metrics except those by tenant.
    pub(super) fn register(&self, registry: &mut Registry) {
        // A query can compute a rate for the first failure if the series exist before.
        for port in ["listen", "admin_listen"] {
            drop(self.invalid_tokens.get_or_create(&[("port", port)]));
        }
        let [disk_free, disk_size] = &self.disks;
        register! { registry:
            "requests", "Requests answered", self.requests;
            "busy_answers", "Requests answered 429", self.busy_answers;
            "config_reload_failed", "1 if the last reload of the configuration failed, otherwise 0", self.reload_failed;
            "queue_wait" Seconds, "Waiting time of extractions for a permit, grants for memory and batches for a lane", self.queue_waits.0;
            "extractions", "Admitted extractions by outcome", self.extractions;
            "samples", "Samples answered", self.samples;
            "calls_halved", "Guest calls repeated with half the samples after exceeding a limit on memory", self.calls_halved;
            "answer" Bytes, "Bytes of extractions sent", self.answer_bytes;
            "upload" Bytes, "Bytes of guests and models received", self.upload_bytes;
            "read" Bytes, READ_BYTES, self.read_bytes;
            "call" Seconds, "Duration of the calls for one grant", self.call_seconds.0;
            "extraction" Seconds, "Duration of extractions", self.extraction_seconds.0;
            "read" Seconds, "Duration of object reads, waits for memory included", self.read_seconds.0;
            "decode" Seconds, "Duration of image decoding on one thread", self.decode_seconds.0;
            "guest_cpu" Seconds, GUEST_CPU, self.guest_cpu;
            "compile" Seconds, COMPILING, self.compiling;
            "invalid_tokens", "Requests refused because of an unknown, expired or disabled token", self.invalid_tokens;
            "disk_free" Bytes, "Free space on the file system of a folder", disk_free;
            "disk_size" Bytes, "Size of the file system of a folder", disk_size;
            "connections", "Open connections", self.connections;
            "connections_refused", "Connections refused, or closed for newer ones, at a limit of connections", self.connections_refused;
            "slow_readers", "Connections closed because the client read an answer too slowly", self.slow_readers;
            "unexplained_refusals", "Refusals without a message because memory was short", self.unexplained_refusals;
        }
    }
}
