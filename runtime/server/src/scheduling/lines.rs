//! Who has permits and who waits for one, and who is next.

use super::admission::Permit;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Default)]
pub(super) struct Lines {
    pub(super) stopped: bool,
    pub(super) running: usize,
    pub(super) queued: usize,
    pub(super) next: u64,
    /// Tenants that have something here, so that strangers' names take no memory.
    pub(super) tenants: BTreeMap<String, Line>,
}

#[derive(Default)]
pub(super) struct Line {
    pub(super) allowed: usize,
    pub(super) running: usize,
    pub(super) used: Duration,
    pub(super) waiting: VecDeque<Waiter>,
}

pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) permit: oneshot::Sender<Permit>,
}

/// How many extractions of a tenant run and wait, or may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) running: usize,
    pub(crate) queued: usize,
}

impl Line {
    pub(super) fn standing(&self) -> Standing {
        Standing {
            running: self.running,
            queued: self.waiting.len(),
        }
    }
}

impl Lines {
    /// Where a newcomer starts: nobody is owed time for having been away.
    pub(super) fn newcomer(&self) -> Line {
        let used = self.tenants.values().map(|line| line.used).min();
        Line {
            used: used.unwrap_or_default(),
            ..Line::default()
        }
    }

    /// Takes out who is next, and counts it as running.
    pub(super) fn first(&mut self) -> Option<(String, Waiter)> {
        let may = |line: &Line| !line.waiting.is_empty() && line.running < line.allowed;
        let tenants = self.tenants.iter().filter(|(_, line)| may(line));
        let (name, _) = tenants.min_by_key(|(_, line)| (line.running, line.used))?;
        let name = name.clone();
        let line = self.tenants.get_mut(&name)?;
        let waiter = line.waiting.pop_front()?;
        line.running += 1;
        self.running += 1;
        self.queued = self.queued.saturating_sub(1);
        Some((name, waiter))
    }

    pub(super) fn forget_idle(&mut self, tenant: &str) {
        let idle = |line: &Line| line.running == 0 && line.waiting.is_empty();
        if self.tenants.get(tenant).is_some_and(idle) {
            self.tenants.remove(tenant);
        }
    }
}
