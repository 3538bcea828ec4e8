use super::Tiers;
use anyhow::{Context, Result};
use frostline_e2e::HostProcess;
use std::time::Instant;

/// Clock ticks of a second in /proc, which Linux has fixed at 100 for programs.
const TICKS: f64 = 100.0;

/// Watches what the processes of both tiers compute and what the link brings.
pub(crate) struct Meter<'a> {
    tiers: &'a Tiers,
    /// Trainer, host, store.
    processes: [u32; 3],
    before: Reading,
}

#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    bytes: u64,
    /// Seconds computed by each process.
    computed: [f64; 3],
}

/// What was used since the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) seconds: f64,
    /// That the link brought, headers included.
    pub(crate) bytes: u64,
    /// Share of a core that each process computed.
    pub(crate) trainer: f64,
    pub(crate) host: f64,
    pub(crate) store: f64,
}

impl<'a> Meter<'a> {
    pub(crate) fn open(tiers: &'a Tiers, host: &HostProcess) -> Result<Self> {
        let processes = [std::process::id(), host.id(), tiers.store.id()];
        Ok(Self {
            tiers,
            processes,
            before: Reading::read(tiers, &processes)?,
        })
    }

    /// Counts from now on.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.before = Reading::read(self.tiers, &self.processes)?;
        Ok(())
    }

    pub(crate) fn used(&self) -> Result<Used> {
        let now = Reading::read(self.tiers, &self.processes)?;
        let seconds = now.at.duration_since(self.before.at).as_secs_f64();
        let mut shares = now.computed;
        for (share, before) in shares.iter_mut().zip(self.before.computed) {
            *share = (*share - before) / seconds;
        }
        let [trainer, host, store] = shares;
        Ok(Used {
            seconds,
            bytes: now.bytes.saturating_sub(self.before.bytes),
            trainer,
            host,
            store,
        })
    }
}

impl Reading {
    fn read(tiers: &Tiers, processes: &[u32; 3]) -> Result<Self> {
        let [trainer, host, store] = processes.map(computed);
        Ok(Self {
            at: Instant::now(),
            bytes: tiers.link.received()?,
            computed: [trainer?, host?, store?],
        })
    }
}

/// Seconds that all threads of a process have computed.
fn computed(process: u32) -> Result<f64> {
    let file = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    ticks(&text)
        .map(|ticks| ticks as f64 / TICKS)
        .with_context(|| format!("cannot read {file}"))
}

/// User and system time: the 14th and 15th field. The second, the program's name, may hold anything, in brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 90 0 0 0 30 12 0 0 20 0 1 0 5 0 0";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a) S"), None);
    }
}
