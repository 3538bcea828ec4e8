//! What the host's process holds that nobody reserved.

use frostline_batching::{Kind, Memory};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often the process is looked at: between two looks a network of 1 Gbit/s brings 30 MB, which what the budget spares covers.
const LOOK: Duration = Duration::from_millis(250);

/// Of what the base was beyond what is measured, so much is kept from one look to the next: what is reserved and not used yet hides some of
/// it, for a second or so.
const KEPT: u64 = 7;
const OF: u64 = 8;

/// Of the budget: a base that is larger by so much than at the start is the caches', which are emptied then.
const CROWDED: u64 = 4;

/// How long after that they are left alone.
const FILLS: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Base {
    memory: Memory,
    /// When nothing was reserved yet.
    idle: u64,
    base: u64,
}

impl Base {
    /// Looks for the first time, before anything is reserved.
    pub(crate) fn new(memory: Memory) -> Self {
        let idle = anonymous_bytes().unwrap_or(0);
        let base = Self {
            memory,
            idle,
            base: idle,
        };
        base.tell();
        base
    }

    /// Corrects the base until `stop`, and has caches emptied by `forget` where it is mostly these.
    pub(crate) async fn watch(mut self, stop: CancellationToken, forget: impl Fn() + Send) {
        let mut forgot = Instant::now();
        while tokio::time::timeout(LOOK, stop.cancelled()).await.is_err() {
            let Some(measured) = anonymous_bytes() else { return };
            self.look(measured);
            if self.crowded() && forgot.elapsed() > FILLS {
                tracing::info!(
                    base = self.base,
                    "caches are emptied: they take a quarter of the memory_budget"
                );
                forget();
                forgot = Instant::now();
            }
        }
    }

    fn crowded(&self) -> bool {
        let budget = self.memory.read(|ledger| ledger.budget().bytes);
        self.base.saturating_sub(self.idle) > budget / CROWDED
    }

    fn look(&mut self, measured: u64) {
        let here = [Kind::Kept, Kind::Request, Kind::Grant, Kind::Read, Kind::Decode];
        let reserved: u64 = self
            .memory
            .read(|ledger| here.iter().map(|kind| ledger.held(*kind)).sum());
        let unreserved = measured.saturating_sub(reserved).max(self.idle);
        let kept = unreserved + self.base.saturating_sub(unreserved) / OF * KEPT;
        self.base = kept;
        self.tell();
    }

    fn tell(&self) {
        self.memory.set_base(self.base);
    }
}

/// Memory of this process that is no file's, as Linux tells it.
fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some((kib("RssAnon:")? + kib("RssShmem:").unwrap_or(0)) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_batching::Budget;

    #[test]
    fn what_is_measured_beyond_what_is_reserved_counts_at_once_and_goes_slowly() {
        let memory = Memory::new(Budget {
            bytes: 6400,
            ..Budget::default()
        });
        let mut base = Base {
            memory: memory.clone(),
            idle: 500,
            base: 500,
        };
        let told = |base: &mut Base, measured| {
            base.look(measured);
            memory.read(frostline_batching::Ledger::base)
        };
        assert_eq!(told(&mut base, 2500), 2500);
        let reserved = memory.try_reserve("a", Kind::Grant, 2000).unwrap();
        assert_eq!(told(&mut base, 4500), 2500, "all of the grant is in use");
        let hidden = told(&mut base, 2500);
        assert!(hidden < 2500 && hidden > 2000, "{hidden}");
        for _ in 0..100 {
            base.look(500);
        }
        assert!(base.base < 520, "{}", base.base);
        drop(reserved);
    }
}
