//! Queue of work items, ordered by tenant and line.

use super::decision::Part;
use super::stages::StageId;
use super::work::{DeviceRules, QueueFull, TIME_SLICE};
use crate::shares::Shares;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A work item in the queue or in flight.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) tenant: Arc<str>,
    pub(super) weight: u32,
    /// Work items of the same line execute in order of arrival.
    pub(super) line: Arc<str>,
    pub(super) priority: i32,
    pub(super) fixed: Option<usize>,
    pub(super) stage: StageId,
    pub(super) bytes: usize,
    /// Waiting rows, in order.
    pub(super) left: VecDeque<Range<usize>>,
    /// Number of batches in flight with rows of this item.
    pub(super) running: usize,
    /// True after a joined batch failed. Later batches contain no rows of other items.
    pub(super) apart: bool,
    /// Number of processes lost while executing only this item.
    pub(super) lost: u32,
    /// Number of consecutive kills of the process while executing only this item.
    pub(super) killed: u32,
    /// True if the last batch ended as if memory was insufficient. The next batch has the smallest size and
    /// all free memory.
    pub(super) aborted: bool,
    /// Time since which other work overtakes this item although it is first.
    pub(super) passed: Option<Duration>,
}

impl Entry {
    pub(super) fn rows_left(&self) -> usize {
        self.left.iter().map(ExactSizeIterator::len).sum()
    }

    /// Number of contiguous rows at the front.
    pub(super) fn first_rows(&self) -> usize {
        self.left.front().map_or(0, ExactSizeIterator::len)
    }

    /// True if the rows may be joined with other items of the tenant.
    pub(super) fn joins(&self) -> bool {
        self.fixed.is_none() && !self.apart && !self.aborted
    }

    /// Removes and returns up to `most` contiguous rows.
    fn next_rows(&mut self, most: usize) -> Option<Range<usize>> {
        let first = self.left.pop_front()?;
        let end = first.end.min(first.start.saturating_add(most));
        if end < first.end {
            self.left.push_front(end..first.end);
        }
        Some(first.start..end)
    }

    fn put_back(&mut self, rows: Range<usize>) {
        let at = self.left.partition_point(|other| other.start < rows.start);
        self.left.insert(at, rows);
        let mut joined: VecDeque<Range<usize>> = VecDeque::new();
        for range in self.left.drain(..) {
            match joined.back_mut() {
                Some(before) if before.end == range.start => before.end = range.end,
                _ => joined.push_back(range),
            }
        }
        self.left = joined;
    }
}

impl<K> Default for Shares<K> {
    /// Creates a queue with a credit of one time slice. A larger credit would be unfair because the competitor had no
    /// work before. A smaller one would penalize competitors with short batches, because they briefly have no work
    /// after each batch.
    fn default() -> Self {
        Self::new(TIME_SLICE)
    }
}

/// Work items with their tenants and lines.
#[derive(Debug, Default)]
pub(super) struct Queue {
    works: HashMap<u64, Entry>,
    tenants: HashMap<Arc<str>, Tenant>,
    turns: Shares<Arc<str>>,
    bytes: usize,
    /// Overtaken work items, ordered by the time when this began.
    passed: BTreeSet<(Duration, u64)>,
}

#[derive(Debug, Default)]
struct Tenant {
    works: usize,
    bytes: usize,
    turns: Shares<Arc<str>>,
    /// Work items with waiting rows per line, in order of arrival.
    lines: HashMap<Arc<str>, BTreeSet<u64>>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.works.len()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Entry> {
        self.works.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Entry> {
        self.works.get_mut(&id)
    }

    /// Checks whether the queue accepts a work item of `more` bytes. A single tenant can use the whole queue.
    /// Several tenants divide the limits evenly. The first work item of a tenant is always accepted.
    pub(super) fn check(&self, tenant: &Arc<str>, more: usize, rules: &DeviceRules) -> Result<(), QueueFull> {
        let (own_works, own_bytes) = self
            .tenants
            .get(tenant)
            .map_or((0, 0), |tenant| (tenant.works, tenant.bytes));
        let tenants = self.tenants.len() + usize::from(own_works == 0);
        let in_all = self.bytes.saturating_add(more) <= rules.bytes && self.works.len() < rules.works;
        let share = own_bytes.saturating_add(more) <= rules.bytes / tenants
            && own_works < rules.works.div_ceil(tenants);
        if own_works == 0 || (in_all && share) {
            return Ok(());
        }
        Err(QueueFull {
            works: rules.works,
            bytes: rules.bytes,
            tenants,
            own_works,
            own_bytes,
            more,
        })
    }

    /// Adds a work item at the end of the line.
    pub(super) fn push(&mut self, id: u64, entry: Entry) {
        let tenant = self.tenants.entry(Arc::clone(&entry.tenant)).or_default();
        tenant.works += 1;
        tenant.bytes = tenant.bytes.saturating_add(entry.bytes);
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.works.insert(id, entry);
        self.join_line(id);
    }

    /// Adds a work item with waiting rows to its line.
    fn join_line(&mut self, id: u64) {
        let Some(entry) = self.works.get(&id).filter(|entry| !entry.left.is_empty()) else {
            return;
        };
        let Some(tenant) = self.tenants.get_mut(&entry.tenant) else {
            return;
        };
        let line = tenant.lines.entry(Arc::clone(&entry.line)).or_default();
        line.insert(id);
        tenant.turns.ready(&entry.line, entry.priority, 1);
        self.turns.ready(&entry.tenant, 0, entry.weight);
    }

    /// Removes a work item without waiting rows from the line, and resets the overtaken state.
    fn leave_line(&mut self, id: u64) {
        let Some(entry) = self.works.get_mut(&id) else {
            return;
        };
        if let Some(since) = entry.passed.take() {
            self.passed.remove(&(since, id));
        }
        let Some(tenant) = self.tenants.get_mut(&entry.tenant) else {
            return;
        };
        if !entry.left.is_empty() {
            return;
        }
        if let Some(line) = tenant.lines.get_mut(&entry.line) {
            line.remove(&id);
            if line.is_empty() {
                tenant.lines.remove(&entry.line);
                tenant.turns.unready(&entry.line);
            }
        }
        if tenant.lines.is_empty() {
            self.turns.unready(&entry.tenant);
        }
    }

    /// Removes up to `most` rows of a work item from the queue to execute them.
    pub(super) fn take_part(&mut self, id: u64, most: usize) -> Option<Part> {
        let entry = self.works.get_mut(&id)?;
        let rows = entry.next_rows(most)?;
        entry.running += 1;
        self.leave_line(id);
        Some(Part { work: id, rows })
    }

    /// Returns rows of a batch to the front.
    pub(super) fn put_back(&mut self, id: u64, rows: Range<usize>) {
        if let Some(entry) = self.works.get_mut(&id) {
            entry.put_back(rows);
        }
        self.join_line(id);
    }

    /// Starts a batch of a tenant with the expected duration `guess`.
    pub(super) fn start_run(&mut self, tenant: &Arc<str>, line: &Arc<str>, guess: Duration) {
        self.turns.start_turn(tenant, guess);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.turns.start_turn(line, guess);
        }
    }

    /// Ends a batch of a tenant, with the actual duration `time` and the expected duration `guess`.
    pub(super) fn end(&mut self, tenant: &Arc<str>, line: &Arc<str>, guess: Duration, time: Duration) {
        self.turns.end(tenant, guess, time);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.turns.end(line, guess, time);
        }
    }

    /// Removes a work item that finished or was cancelled.
    pub(super) fn remove(&mut self, id: u64) -> Option<Entry> {
        if let Some(entry) = self.works.get_mut(&id) {
            entry.left.clear();
        }
        self.leave_line(id);
        let entry = self.works.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        if let Some(tenant) = self.tenants.get_mut(&entry.tenant) {
            tenant.works = tenant.works.saturating_sub(1);
            tenant.bytes = tenant.bytes.saturating_sub(entry.bytes);
            if tenant.works == 0 {
                self.tenants.remove(&entry.tenant);
            }
        }
        Some(entry)
    }

    /// Returns the waiting work items in scheduling order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        let tenants = self.turns.iter().filter_map(|name| self.tenants.get(name));
        let lines = tenants.flat_map(Tenant::works);
        lines.filter_map(|id| Some((id, self.works.get(&id)?)))
    }

    /// Returns the tenant's waiting work items in scheduling order.
    pub(super) fn entries_of(&self, tenant: &Arc<str>) -> impl Iterator<Item = (u64, &Entry)> {
        let ids = self.tenants.get(tenant).into_iter().flat_map(Tenant::works);
        ids.filter_map(|id| Some((id, self.works.get(&id)?)))
    }

    /// Records that other work overtakes the first work item `id`.
    pub(super) fn pass(&mut self, id: u64, now: Duration) {
        let entry = self.works.get_mut(&id);
        if let Some(entry) = entry.filter(|entry| entry.passed.is_none()) {
            entry.passed = Some(now);
            self.passed.insert((now, id));
        }
    }

    /// Returns the work items overtaken since `until` or earlier, the longest first.
    pub(super) fn passed(&self, until: Duration) -> impl Iterator<Item = (Duration, u64)> {
        self.passed.range(..=(until, u64::MAX)).copied()
    }

    /// Number of waiting rows per tenant, for tenants with waiting rows.
    pub(super) fn rows(&self) -> BTreeMap<&Arc<str>, usize> {
        let mut rows = BTreeMap::new();
        for entry in self.works.values().filter(|entry| !entry.left.is_empty()) {
            *rows.entry(&entry.tenant).or_default() += entry.rows_left();
        }
        rows
    }

    /// True if a tenant other than `tenant` has work items, waiting or in flight.
    pub(super) fn has_work_of_others(&self, tenant: &Arc<str>) -> bool {
        self.tenants.len() > usize::from(self.tenants.contains_key(tenant))
    }

    /// Returns the difference in device time to the active tenant with the most time per weight.
    pub(super) fn owed(&self, tenant: &Arc<str>) -> Duration {
        self.turns.owed(tenant)
    }
}

impl Tenant {
    fn works(&self) -> impl Iterator<Item = u64> {
        let lines = self.turns.iter().filter_map(|name| self.lines.get(name));
        lines.flatten().copied()
    }
}
