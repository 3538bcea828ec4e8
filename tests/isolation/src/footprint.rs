//! Resources of a host and its child processes, and the CPU time of work for tenants, from `/proc`, the
//! ledger and the metrics.

use crate::memory::unreserved;
use crate::scene::Scene;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, fs};

/// Memory that may remain without a reservation, in bytes: heaps that allocators retain, caches with a bound
/// and connections.
pub(crate) const ALLOWED_BYTES: u64 = 64 << 20;

/// Files and sockets that a host may open on first use and keep, such as prepared networks. A leak in one of the
/// cases exceeds this, because each is repeated.
const KEPT_DESCRIPTORS: usize = 16;

/// Compiled guests that a host keeps ready. Each can have a file in memory with its initial data.
const READY_GUESTS: usize = 64;

/// Kind of these files.
const GUEST_DATA: &str = "wasm-memory-image";

/// Interval for checking whether a host has released everything.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Resources that a host holds for clients.
#[derive(Debug, Clone)]
pub struct Footprint {
    /// Anonymous memory without a reservation, in bytes.
    pub(crate) unreserved: u64,
    /// Threads of the host's process by name without a number.
    threads: BTreeMap<String, usize>,
    /// Open files and sockets of the host's process by kind, or none if this user may not list them.
    descriptors: BTreeMap<String, usize>,
    /// Child processes.
    children: usize,
}

impl Footprint {
    /// Reads the current footprint.
    ///
    /// # Errors
    /// Returns an error without `/proc` or if the admin command fails.
    pub(crate) fn read(scene: &Scene) -> Result<Self> {
        let process = scene.process()?;
        let mut threads = BTreeMap::new();
        for (name, _) in threads_of(process)? {
            let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
            *threads.entry(name.to_owned()).or_default() += 1;
        }
        Ok(Self {
            unreserved: unreserved(scene)?,
            threads,
            descriptors: descriptors_of(process),
            children: scene.processes()?.len() - 1,
        })
    }

    /// Lists the resources in excess of the idle host.
    fn beyond(&self, idle: &Self) -> Vec<String> {
        let memory = self.unreserved.saturating_sub(idle.unreserved);
        let memory = (memory > ALLOWED_BYTES).then(|| format!("{memory} bytes without a reservation"));
        let threads = self.threads.iter().map(|(name, now)| {
            let idle = idle.threads.get(name).copied().unwrap_or(0);
            (format!("threads {name}"), *now, idle)
        });
        let open = |footprint: &Self| {
            let of_guests = footprint.descriptors.get(GUEST_DATA).copied().unwrap_or(0);
            footprint.descriptors.values().sum::<usize>() - of_guests.min(READY_GUESTS)
        };
        let others = [
            (
                format!("open files and sockets ({:?})", self.descriptors),
                open(self),
                open(idle) + KEPT_DESCRIPTORS,
            ),
            ("child processes".to_owned(), self.children, idle.children),
        ];
        let more = threads.chain(others).filter(|(_, now, idle)| now > idle);
        more.map(|(what, now, idle)| format!("{} {what}", now - idle))
            .chain(memory)
            .collect()
    }

    /// Waits until a host holds no more than when it was idle. Returns what it still holds after `grace`.
    ///
    /// # Errors
    /// Returns the same errors as [`Footprint::read`].
    pub(crate) async fn left_over(scene: &Scene, idle: &Self, grace: Duration) -> Result<Vec<String>> {
        let until = Instant::now() + grace;
        loop {
            let left = Self::read(scene)?.beyond(idle);
            if left.is_empty() || Instant::now() >= until {
                return Ok(left);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Counts the open files and sockets of a process by kind: the last folder of a file, the name of a file in memory, or
/// a word such as `socket`.
fn descriptors_of(process: u32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    for target in open
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
    {
        let text = target.to_string_lossy();
        let kind = match text.strip_prefix("/memfd:") {
            Some(name) => name.split(' ').next(),
            None if text.starts_with('/') => target.parent().and_then(Path::to_str),
            None => text.split(':').next(),
        };
        *kinds.entry(kind.unwrap_or_default().to_owned()).or_default() += 1;
    }
    kinds
}

/// A kind of work, with the metrics by tenant that charge it.
struct Work {
    name: &'static str,
    cpu: fn(&CpuTimes) -> f64,
    charged_by: &'static [&'static str],
}

/// All kinds of work. The time of blocking threads is what the host's process used in addition to named
/// threads and async workers.
const WORK: [Work; 4] = [
    Work {
        // The wait for a compiler is charged, which includes the time of the thread that prepares a guest.
        name: "child processes",
        cpu: |times| times.children + times.of_threads("prepare"),
        charged_by: &[
            "frostline_tenant_device_seconds_total",
            "frostline_tenant_compile_seconds_total",
        ],
    },
    Work {
        name: "guests",
        cpu: |times| times.of_threads("guest-"),
        charged_by: &["frostline_tenant_guest_cpu_seconds_total"],
    },
    Work {
        name: "decoding",
        cpu: |times| times.of_threads("decode-"),
        charged_by: &["frostline_tenant_decode_cpu_seconds_total"],
    },
    Work {
        name: "blocking threads",
        cpu: CpuTimes::of_blocking_threads,
        charged_by: &["frostline_tenant_blocking_cpu_seconds_total"],
    },
];

/// Name of the threads of tokio, of which the first are async workers and the others run blocking work.
const TOKIO: &str = "tokio-rt-worker";

/// CPU time of a host since its start, in seconds, and the time charged to tenants.
#[derive(Debug, Clone)]
pub(crate) struct CpuTimes {
    at: Instant,
    /// Child processes, running or ended.
    children: f64,
    /// The host's process, with ended threads.
    process: f64,
    /// Running threads of the host's process, by name and in order of creation.
    threads: Vec<(String, f64)>,
    /// Seconds of all tenants by metric.
    charged: BTreeMap<String, f64>,
}

impl CpuTimes {
    /// Reads the times of the acting tenant's host.
    ///
    /// # Errors
    /// Returns an error without `/proc` or if the metrics cannot be read.
    pub(crate) fn read(scene: &Scene) -> Result<Self> {
        let process = scene.process()?;
        let own = Stat::read(&format!("/proc/{process}/stat")).context("the host has exited")?;
        let running = scene.processes()?.into_iter().skip(1);
        let running = running.filter_map(|child| Stat::read(&format!("/proc/{child}/stat")));
        Ok(Self {
            at: Instant::now(),
            children: own.waited_for + running.map(|child| child.own).sum::<f64>(),
            process: own.own,
            threads: threads_of(process)?,
            charged: charged(&scene.tenant_metrics()?),
        })
    }

    /// Returns the seconds of work since `before`, and those that no tenant was charged for.
    pub(crate) fn uncharged_since(&self, before: &Self) -> Uncharged {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let mut sum = Uncharged {
            seconds,
            ..Uncharged::default()
        };
        for work in WORK {
            let worked = ((work.cpu)(self) - (work.cpu)(before)).max(0.0);
            let of = |times: &Self| -> f64 {
                let counters = work.charged_by.iter();
                counters.filter_map(|name| times.charged.get(*name)).sum()
            };
            let uncharged = (worked - (of(self) - of(before))).max(0.0);
            sum.work.insert(work.name, WorkTime { worked, uncharged });
        }
        sum
    }

    fn of_threads(&self, prefix: &str) -> f64 {
        let named = self.threads.iter().filter(|(name, _)| name.starts_with(prefix));
        named.map(|(_, seconds)| seconds).sum()
    }

    fn of_blocking_threads(&self) -> f64 {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let tokio = self.threads.iter().filter(|(name, _)| name == TOKIO);
        let workers = tokio.take(workers).map(|(_, seconds)| seconds);
        let named = self.threads.iter().filter(|(name, _)| name != TOKIO);
        let others = named.map(|(_, seconds)| seconds).chain(workers);
        self.process - others.sum::<f64>()
    }
}

/// CPU time of a kind of work in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct WorkTime {
    worked: f64,
    uncharged: f64,
}

/// CPU time of work in a period.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uncharged {
    /// Length of the period in seconds.
    seconds: f64,
    work: BTreeMap<&'static str, WorkTime>,
}

impl Uncharged {
    /// Returns the part of all CPU time that was not charged.
    pub(crate) fn share(&self) -> f64 {
        let worked: f64 = self.work.values().map(|time| time.worked).sum();
        let uncharged: f64 = self.work.values().map(|time| time.uncharged).sum();
        uncharged / worked.max(f64::MIN_POSITIVE)
    }

    /// Subtracts the time that the host needs for itself, according to a period in which it was idle.
    pub(crate) fn without_idle(mut self, idle: &Self) -> Self {
        for (name, time) in &mut self.work {
            let of_host = idle.work.get(name).map_or(0.0, |time| time.worked) / idle.seconds * self.seconds;
            time.worked = (time.worked - of_host).max(0.0);
            time.uncharged = (time.uncharged - of_host).max(0.0);
        }
        self
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, time) in &other.work {
            let sum = self.work.entry(name).or_default();
            sum.worked += time.worked;
            sum.uncharged += time.uncharged;
        }
    }
}

impl fmt::Display for Uncharged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, time)) in self.work.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(
                f,
                "{separator}{name} {:.1} of {:.1} s",
                time.uncharged, time.worked
            )?;
        }
        Ok(())
    }
}

/// Name and CPU times in seconds from `/proc/PID/stat`.
struct Stat {
    name: String,
    /// Time of the start in clock ticks since boot.
    started: u64,
    own: f64,
    /// Time of child processes that have ended.
    waited_for: f64,
}

impl Stat {
    /// Returns `None` if the process or thread has ended.
    fn read(path: &str) -> Option<Self> {
        let stat = fs::read_to_string(path).ok()?;
        // The name can contain any character, and the last parenthesis ends it.
        let (head, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        // Field numbers in proc_pid_stat(5) start at 1, and the first field here is field 3.
        let seconds = |field: usize| Some(fields.get(field - 3)?.parse::<f64>().ok()? / ticks);
        Some(Self {
            name: head.split_once('(')?.1.to_owned(),
            started: fields.get(22 - 3)?.parse().ok()?,
            own: seconds(14)? + seconds(15)?,
            waited_for: seconds(16)? + seconds(17)?,
        })
    }
}

/// Returns the names and CPU seconds of a process's threads, in order of creation.
fn threads_of(process: u32) -> Result<Vec<(String, f64)>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))?;
    let tasks = tasks.filter_map(|task| Stat::read(task.ok()?.path().join("stat").to_str()?));
    let mut threads: Vec<Stat> = tasks.collect();
    // Ids are reused from the smallest.
    threads.sort_by_key(|thread| thread.started);
    Ok(threads
        .into_iter()
        .map(|thread| (thread.name, thread.own))
        .collect())
}

/// Sums the counters of seconds by tenant in an exposition.
fn charged(metrics: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in metrics.lines() {
        if let Some((name, rest)) = line.split_once("{tenant=")
            && let Some(seconds) = rest
                .rsplit(' ')
                .next()
                .and_then(|value| value.parse::<f64>().ok())
        {
            *sums.entry(name.to_owned()).or_default() += seconds;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(children: f64, threads: &[(&str, f64)], metrics: &str) -> CpuTimes {
        CpuTimes {
            at: Instant::now(),
            children,
            process: threads.iter().map(|(_, seconds)| seconds).sum(),
            threads: threads
                .iter()
                .map(|(name, seconds)| ((*name).to_owned(), *seconds))
                .collect(),
            charged: charged(metrics),
        }
    }

    #[test]
    fn work_in_excess_of_charges_is_uncharged() {
        let before = times(1.0, &[("decode-0", 1.0), ("guest-0", 0.0)], "");
        let metrics = "frostline_tenant_device_seconds_total{tenant=\"a\"} 2.5\n\
                       frostline_tenant_device_seconds_total{tenant=\"b\"} 0.5\n\
                       frostline_tenant_guest_cpu_seconds_total{tenant=\"a\"} 9.0\n\
                       frostline_lanes 2\n";
        let after = times(5.0, &[("decode-0", 2.0), ("guest-0", 5.0)], metrics);
        let uncharged = after.uncharged_since(&before);
        let of = |name| {
            let WorkTime { worked, uncharged } = uncharged.work[name];
            (worked, uncharged)
        };
        assert_eq!(of("child processes"), (4.0, 1.0));
        assert_eq!(of("decoding"), (1.0, 1.0));
        assert_eq!(of("guests"), (5.0, 0.0));
        assert_eq!(uncharged.share(), 0.2);
        let seconds_of = |seconds, uncharged: &Uncharged| Uncharged {
            seconds,
            ..uncharged.clone()
        };
        let half = seconds_of(20.0, &uncharged).without_idle(&seconds_of(40.0, &uncharged));
        let WorkTime { worked, uncharged } = half.work["child processes"];
        assert_eq!((worked, uncharged), (2.0, 0.0));
    }

    #[test]
    fn counts_and_memory_beyond_the_idle_host_are_left_over() {
        let idle = Footprint {
            unreserved: 10 << 20,
            threads: BTreeMap::from([("decode-".to_owned(), 2)]),
            descriptors: BTreeMap::from([("socket".to_owned(), 20)]),
            children: 2,
        };
        assert_eq!(idle.beyond(&idle), Vec::<String>::new());
        let open = |sockets, guests| Footprint {
            descriptors: BTreeMap::from([("socket".to_owned(), sockets), (GUEST_DATA.to_owned(), guests)]),
            ..idle.clone()
        };
        let kept = 20 + KEPT_DESCRIPTORS;
        assert_eq!(open(kept, READY_GUESTS).beyond(&idle), Vec::<String>::new());
        assert_eq!(open(kept + 1, 0).beyond(&idle).len(), 1);
        assert_eq!(open(kept, READY_GUESTS + 1).beyond(&idle).len(), 1);
        let now = Footprint {
            unreserved: (10 << 20) + ALLOWED_BYTES + 1,
            threads: BTreeMap::from([("decode-".to_owned(), 2), ("tokio-rt-worker".to_owned(), 3)]),
            ..idle.clone()
        };
        assert_eq!(
            now.beyond(&idle),
            [
                "3 threads tokio-rt-worker",
                "67108865 bytes without a reservation"
            ]
        );
    }
}
