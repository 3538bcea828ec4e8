//! Output of `/metrics`: counters, and values that the host reads for each scrape.

use super::counters::Metrics;
use super::memory::MemorySnapshot;
use super::plain::plain_text;
use super::process::Process;
use crate::refusal::Refusal;
use crate::scheduling::{TenantMemory, with_reservation};
use bytes::Bytes;
use frostline_engine::LaneStats;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Current values from other parts of the host.
#[derive(Debug)]
pub(crate) struct HostSnapshot {
    pub(crate) queued: usize,
    pub(crate) running: usize,
    pub(crate) lanes: LaneStats,
    pub(crate) memory: MemorySnapshot,
    pub(crate) decode_threads: usize,
    /// Time since the shared state was last read to the end.
    pub(crate) state_age: Duration,
    /// Seconds that the local clock is ahead of others, if another clock is known.
    pub(crate) clock_skew: Option<i64>,
    /// Number of revocations that the state does not contain yet.
    pub(crate) revocations: usize,
    /// Availability of each probed data root.
    pub(crate) roots_up: Vec<(String, bool)>,
    /// Expiry of the last token of each tenant in Unix seconds.
    pub(crate) token_expiry: Vec<(String, u64)>,
    /// Expiry of the certificate in Unix seconds.
    pub(crate) certificate_expiry: Option<i64>,
}

/// Build information, which is constant while the host runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Build {
    pub(crate) version: &'static str,
    pub(crate) device: String,
    /// Name and version of the engine's library.
    pub(crate) library: String,
}

/// Minimum time between two renderings. Requests within this time share a text, which limits the number of
/// texts that clients can keep in memory without reading them.
const RENDER_INTERVAL: Duration = Duration::from_secs(1);

/// Readers of `/metrics`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Audience {
    /// Clients of the tenants' port, whose text contains no names of tenants or data roots.
    Everyone,
    /// The operator of the host.
    Operator,
}

/// Reserved text of `/metrics` in both formats.
#[derive(Clone)]
pub(crate) struct Scrape {
    /// Time of the last attempt to render a text.
    rendered: Instant,
    pub(crate) open_metrics: Bytes,
    pub(crate) plain: Bytes,
}

/// Content of `/metrics`.
pub(crate) struct Exposition {
    /// Latest text by [`Audience`].
    scrapes: [Mutex<Option<Scrape>>; 2],
    /// Metrics without the prefix `frostline`.
    process: Registry,
    host: Registry,
    tenants: Registry,
}

impl Exposition {
    /// Creates the content from `metrics`, to which every scrape adds a snapshot.
    pub(crate) fn new(metrics: &Metrics, build: Build) -> Self {
        let mut process = Registry::default();
        process.register_collector(Box::new(Process));
        let [mut host, mut tenants] = [(); 2].map(|()| Registry::with_prefix("frostline"));
        host.register("build", "Build and device of this host", Info::new(build));
        metrics.register(&mut host);
        metrics.store_errors.register(&mut host, &mut tenants);
        metrics.tenants.register(&mut tenants);
        Self {
            scrapes: Default::default(),
            process,
            host,
            tenants,
        }
    }

    /// Returns the text, which is rendered at most once per second and reserved in `memory`. If memory is
    /// short, returns an older text for another second.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if memory is short and no older text exists.
    pub(crate) fn scrape(
        &self,
        audience: Audience,
        now: Instant,
        memory: &TenantMemory,
        snapshot: impl FnOnce() -> HostSnapshot,
    ) -> Result<Scrape, Refusal> {
        let [everyone, operator] = &self.scrapes;
        let mut latest = match audience {
            Audience::Everyone => everyone.lock(),
            Audience::Operator => operator.lock(),
        };
        let fresh = latest
            .as_ref()
            .filter(|scrape| now < scrape.rendered + RENDER_INTERVAL);
        if let Some(scrape) = fresh {
            return Ok(scrape.clone());
        }
        let text = match audience {
            Audience::Everyone => self.text(snapshot()),
            Audience::Operator => self.text_by_tenant(snapshot()),
        };
        let open_metrics = text.map_err(Refusal::host)?;
        let plain = plain_text(&open_metrics);
        let reserved = match memory.try_reserve((open_metrics.len() + plain.len()) as u64) {
            Ok(reserved) => Arc::new(reserved),
            Err(refusal) => {
                let older = latest.as_mut().ok_or(refusal)?;
                older.rendered = now;
                return Ok(older.clone());
            }
        };
        let scrape = Scrape {
            rendered: now,
            open_metrics: with_reservation(open_metrics.into(), &reserved),
            plain: with_reservation(plain.into(), &reserved),
        };
        *latest = Some(scrape.clone());
        Ok(scrape)
    }

    /// Encodes the metrics of the host as a whole, which do not contain names of tenants or data roots.
    fn text(&self, snapshot: HostSnapshot) -> Result<String, fmt::Error> {
        let host = collected(HostCollector(Arc::new(snapshot)));
        encoded(&[&self.process, &self.host, &host])
    }

    /// Encodes all metrics, for the operator of the host.
    pub(super) fn text_by_tenant(&self, snapshot: HostSnapshot) -> Result<String, fmt::Error> {
        let snapshot = Arc::new(snapshot);
        let host = collected(HostCollector(Arc::clone(&snapshot)));
        let tenants = collected(TenantCollector(snapshot));
        encoded(&[&self.process, &self.host, &host, &self.tenants, &tenants])
    }
}

fn collected(collector: impl Collector) -> Registry {
    let mut registry = Registry::with_prefix("frostline");
    registry.register_collector(Box::new(collector));
    registry
}

fn encoded(registries: &[&Registry]) -> Result<String, fmt::Error> {
    let mut encoded = String::new();
    for registry in registries {
        text::encode_registry(&mut encoded, registry)?;
    }
    text::encode_eof(&mut encoded)?;
    Ok(encoded)
}

/// The host's current values.
#[derive(Debug)]
struct HostCollector(Arc<HostSnapshot>);

/// The current values of tenants and data roots.
#[derive(Debug)]
struct TenantCollector(Arc<HostSnapshot>);

impl Collector for HostCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = &self.0;
        let lanes = &snapshot.lanes;
        show! { encoder:
            ConstGauge "extractions_queued", "Extractions waiting.", snapshot.queued as u64;
            ConstGauge "extractions_running", "Extractions running.", snapshot.running as u64;
            ConstGauge "revocations_pending", "Revocations of tokens that the state does not contain yet.", snapshot.revocations as u64;
            ConstGauge "lanes", "Engine lanes.", lanes.busy.len() as u64;
            ConstGauge "decode_threads", "Threads that decode images.", snapshot.decode_threads as u64;
            ConstGauge "lane_queue", "Batches waiting for a lane.", lanes.queued as u64;
            ConstGauge "lane_memory_held_bytes", "Memory that lanes hold between engine batches.", lanes.memory_held;
            ConstGauge "lane_memory_reserved_bytes", "Memory reserved for lanes and engine batches.", lanes.memory_reserved;
        }
        if let Some(budget) = lanes.device_budget {
            show! { encoder:
                ConstGauge "device_memory_budget_bytes", "GPU memory budget of the lanes.", budget;
                ConstGauge "device_memory_held_bytes", "GPU memory reserved for lanes and engine batches.", lanes.memory_reserved;
            }
        }
        if let Some(error) = lanes.memory_error {
            show! { encoder:
                ConstGauge "lane_memory_error_p95", "95th percentile of the relative error of the memory predicted for engine batches.", error;
            }
        }
        show! { encoder:
            ConstCounter "lane_samples", "Samples computed by the lanes.", lanes.samples_done;
            ConstCounter "lane_runs", "Successful engine batches.", lanes.runs;
            ConstCounter "lane_rows", "Rows in successful engine batches.", lanes.rows;
            ConstCounter "lane_runs_joined", "Engine batches with rows of several requests.", lanes.runs_joined;
            ConstCounter "lane_out_of_memory", "Engine batches retried with fewer rows after running out of memory.", lanes.out_of_memory;
            ConstCounter "lane_memory_misses", "Engine batches that used more memory than predicted.", lanes.memory_misses;
            ConstCounter "lane_sessions_opened", "Sessions opened.", lanes.sessions_opened;
            ConstCounter "lane_sessions_closed", "Sessions evicted for other sessions.", lanes.sessions_closed;
            ConstCounter "lane_crashes", "Lane processes that crashed during an engine batch.", lanes.crashes;
            ConstCounter "lane_limits_exceeded", "Processes of lanes and preparations that exceeded a limit on memory or threads.", lanes.over_limit;
            ConstCounter "lane_held_up", "Engine batches and preparations ended because other work waited.", lanes.held_up;
            ConstCounter "lane_quarantines", "Stages quarantined after crashing lane processes.", lanes.quarantines;
            ConstGauge "memory_waiting", "Requests waiting for memory.", snapshot.memory.waiting as u64;
            ConstCounter "lane_busy" Seconds, "Total busy time of all lanes, including current engine batches",
                lanes.busy.iter().map(Duration::as_secs_f64).sum::<f64>();
            ConstGauge "state_age" Seconds, "Age of this host's copy of the shared state", snapshot.state_age.as_secs_f64();
        }
        if let Some(skew) = snapshot.clock_skew {
            show! { encoder:
                ConstGauge "clock_skew" Seconds, "Time that this host's clock is ahead of the state's store or other hosts", skew;
            }
        }
        if let Some(ends) = snapshot.certificate_expiry {
            show! { encoder:
                ConstGauge "certificate_expiry_timestamp" Seconds, "Expiry of the host's certificate in Unix seconds", ends;
            }
        }
        show! { encoder:
            ConstGauge "memory_budget" Bytes, "Memory budget of the host including lanes", snapshot.memory.budget;
        }
        show_by! { encoder:
            ConstGauge "memory_held" Bytes, "Reserved memory by kind, and the unreserved base", "kind" in &snapshot.memory.held, bytes => *bytes;
        }
        Ok(())
    }
}

impl Collector for TenantCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = &self.0;
        let lanes = &snapshot.lanes;
        show_by! { encoder:
            ConstGauge "root_up", "1 if the store of the data root answers, otherwise 0",
                "root" in &snapshot.roots_up, up => u64::from(*up);
            ConstGauge "tenant_token_expiry_timestamp" Seconds, "Expiry of the tenant's last token in Unix seconds",
                "tenant" in &snapshot.token_expiry, expires_at => *expires_at;
            ConstCounter "tenant_device" Seconds, "Lane time used, by recently active tenant",
                "tenant" in &lanes.device_time, time => time.as_secs_f64();
            ConstGauge "tenant_longest_wait" Seconds, "Longest wait for a lane within the last 1 to 2 minutes, by tenant",
                "tenant" in &lanes.waited, waited => waited.as_secs_f64();
            ConstGauge "tenant_lane_rows", "Rows waiting for a lane, by tenant",
                "tenant" in &lanes.waiting, rows => *rows as u64;
            ConstGauge "tenant_memory" Bytes, "Reserved memory, by tenant",
                "tenant" in &snapshot.memory.tenants, bytes => *bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{exposition, snapshot};
    use super::*;
    use frostline_batching::{Budget, Kind, Memory};

    #[test]
    fn a_text_is_shared_for_a_second_and_after_that_while_memory_is_short() {
        let exposition = exposition();
        let start = Instant::now();
        let memory = Memory::new(Budget {
            bytes: 64 << 10,
            ..Budget::default()
        });
        let room = TenantMemory::new(&memory, "", Kind::Request);
        let scrape = |seconds| {
            let now = start + Duration::from_secs(seconds);
            exposition
                .scrape(Audience::Everyone, now, &room, snapshot)
                .unwrap()
        };
        let first = scrape(0);
        assert!(first.open_metrics.ends_with(b"# EOF\n") && !first.plain.ends_with(b"# EOF\n"));
        let is_first = |other: &Scrape| other.plain.as_ptr() == first.plain.as_ptr();
        assert!(is_first(&scrape(0)));
        let held = memory.read(frostline_batching::Ledger::held_in_all);
        assert_eq!(held, (first.open_metrics.len() + first.plain.len()) as u64);
        let rest = memory.try_reserve("a", Kind::Request, (64 << 10) - held).unwrap();
        assert!(is_first(&scrape(1)), "memory is short");
        drop(rest);
        assert!(is_first(&scrape(1)), "one attempt each second");
        assert!(!is_first(&scrape(2)));
    }

    #[test]
    fn what_is_counted_is_shown_in_base_units_and_lower_case() {
        let text = exposition().text(snapshot()).unwrap();
        for line in [
            "frostline_samples_total{split=\"cut\",failed=\"false\"} 7",
            "frostline_extractions_total{split=\"input\",outcome=\"client_gone\"} 1",
            "frostline_guest_cpu_seconds_total 1.5",
            "frostline_compile_seconds_total 0.25",
            "frostline_answer_bytes_total 0",
            "frostline_extractions_queued 2",
            "frostline_busy_answers_total 1",
            "frostline_read_bytes_total 2000",
            "frostline_read_seconds_bucket{le=\"0.02\"} 1",
            "frostline_decode_seconds_bucket{le=\"0.005\"} 1",
            "frostline_decode_threads 2",
            "frostline_lanes 2",
            "frostline_queue_wait_seconds_bucket{le=\"5.0\",queue=\"lane\"} 1",
            "frostline_queue_wait_seconds_count{queue=\"memory\"} 0",
            "frostline_state_age_seconds 0.75",
            "frostline_clock_skew_seconds -90",
            "frostline_revocations_pending 2",
            "frostline_certificate_expiry_timestamp_seconds 1800000000",
            "frostline_build_info{version=\"1.2.3\",device=\"cpu\",library=\"onnxruntime 1\"} 1",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
            "process_start_time_seconds ",
            "process_open_fds ",
            "process_max_fds ",
            "frostline_lane_crashes_total 3",
            "frostline_invalid_tokens_total{port=\"admin_listen\"} 0",
            "frostline_disk_free_bytes{folder=\"local\"} 3221225472",
            "frostline_disk_size_bytes{folder=\"local\"} 8589934592",
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
        let exposition = exposition();
        let text = exposition.text(snapshot()).unwrap();
        assert!(!text.contains("acme") && !text.contains("tenant"), "{text}");
        let text = exposition.text_by_tenant(snapshot()).unwrap();
        for line in [
            "frostline_tenant_extractions_total{tenant=\"acme\"} 1",
            "frostline_tenant_memory_bytes{tenant=\"acme\"} 30",
            "frostline_tenant_guest_cpu_seconds_total{tenant=\"acme\"} 1.5",
            "frostline_tenant_compile_seconds_total{tenant=\"acme\"} 0.25",
            "frostline_tenant_device_seconds_total{tenant=\"acme\"} 2.5",
            "frostline_tenant_longest_wait_seconds{tenant=\"acme\"} 0.5",
            "frostline_tenant_busy_answers_total{tenant=\"acme\"} 1",
            "frostline_tenant_lane_rows{tenant=\"acme\"} 7",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
