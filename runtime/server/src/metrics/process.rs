//! Process metrics from `/proc`, with the names that Prometheus client libraries use.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};
use std::fmt;

/// Collector of process metrics. Omits values that are not available.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(bytes) = resident_bytes() {
            show! { encoder:
                ConstGauge "process_resident_memory" Bytes, "Resident memory of the host's process, without lane processes.", bytes;
            }
        }
        if let Some(Times { cpu, started }) = times() {
            show! { encoder:
                ConstCounter "process_cpu" Seconds, "CPU time of the host's process.", cpu;
                ConstGauge "process_start_time" Seconds, "Start of the host's process in Unix seconds.", started;
            }
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            show! { encoder: ConstGauge "process_open_fds", "Open files and sockets.", files.count() as u64; }
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            show! { encoder: ConstGauge "process_max_fds", "Limit of open files and sockets.", most; }
        }
        Ok(())
    }
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Times of this process in seconds.
struct Times {
    cpu: f64,
    /// Start time in Unix seconds.
    started: f64,
}

fn times() -> Option<Times> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program name can contain any character, and the last parenthesis ends it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    // Field numbers in proc_pid_stat(5) start at 1, and the first field here is field 3.
    let [in_user, in_kernel, since_boot] =
        [14_usize, 15, 22].map(|field| Some(fields.get(field - 3)?.parse::<f64>().ok()? / ticks));
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let booted = system.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(Times {
        cpu: in_user? + in_kernel?,
        started: booted.trim().parse::<f64>().ok()? + since_boot?,
    })
}
