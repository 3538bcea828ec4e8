//! Sample of all metrics, for the reference and for tests.

use super::counters::Metrics;
use super::exposition::{Build, Exposition, HostSnapshot};
use super::labels::{Outcome, RequestLabels, SplitKind};
use super::memory::MemorySnapshot;
use super::queues::Queue;
use frostline_engine::LaneStats;
use frostline_objects::Fault;
use frostline_sandbox::Spent;
use std::fmt;
use std::time::Duration;

/// Returns `/metrics` of a host with a GPU, a certificate and the tenant `acme`. Every metric and label is
/// present.
///
/// # Errors
///
/// Returns an error if the metrics cannot be encoded.
pub fn sample_metrics() -> Result<String, fmt::Error> {
    exposition().text_by_tenant(snapshot())
}

pub(super) fn exposition() -> Exposition {
    let metrics = Metrics::default();
    metrics
        .requests
        .get_or_create(&RequestLabels {
            route: "/v1/load".to_owned(),
            status: "2xx",
        })
        .inc();
    metrics.count_samples("acme", SplitKind::Cut, 7, 0);
    metrics.count_extraction("acme", SplitKind::Input, Outcome::ClientGone);
    let spend = metrics.on_spent("acme");
    spend(Spent::Cpu(Duration::from_millis(1500)));
    spend(Spent::Compiling(Duration::from_millis(250)));
    drop(metrics.answer_bytes());
    metrics.tenants.sent_bytes_of("acme").inc_by(0);
    metrics.tenants.count_over_budget("acme");
    drop(metrics.tenants.decoding_of("acme"));
    drop(metrics.tenants.blocking_of("acme"));
    metrics.tenants.count_busy("acme");
    metrics.store_errors.count("s3://photos", Fault::Busy);
    metrics.busy_answers.inc();
    metrics.set_disk("local", [3 << 30, 8 << 30]);
    metrics.read_seconds.observe(Duration::from_millis(10));
    for read in metrics.read_bytes_of("acme") {
        read.inc_by(2000);
    }
    metrics.tenants.count_probe("acme");
    metrics.tenants.count_listing("acme");
    metrics.on_decoded()(Duration::from_millis(3));
    metrics.queue_waits.observe(Queue::Lane, Duration::from_secs(3));
    let build = Build {
        version: "1.2.3",
        device: "cpu".to_owned(),
        library: "onnxruntime 1".to_owned(),
    };
    Exposition::new(&metrics, build)
}

pub(super) fn snapshot() -> HostSnapshot {
    let tenant = "acme".to_owned();
    HostSnapshot {
        queued: 2,
        running: 1,
        lanes: LaneStats {
            samples_done: 5,
            crashes: 3,
            device_budget: Some(70),
            memory_reserved: 60,
            memory_error: Some(0.1),
            device_time: vec![(tenant.clone(), Duration::from_millis(2500))],
            waited: vec![(tenant.clone(), Duration::from_millis(500))],
            waiting: vec![(tenant.clone(), 7)],
            busy: vec![Duration::from_millis(500); 2],
            ..LaneStats::default()
        },
        memory: MemorySnapshot {
            budget: 100,
            held: vec![("base", 10), ("grant", 30)],
            waiting: 1,
            tenants: vec![(tenant, 30)],
        },
        decode_threads: 2,
        roots_up: vec![("s3://photos".to_owned(), true)],
        token_expiry: vec![("acme".to_owned(), 1_800_000_000)],
        state_age: Duration::from_millis(750),
        clock_skew: Some(-90),
        revocations: 2,
        certificate_expiry: Some(1_800_000_000),
    }
}
