use crate::turns::Turns;
use std::sync::Arc;
use std::time::Duration;

/// What a turn on a lane is taken to last until it is over: a grant of 16 samples through a small network on one core (0.1 s
/// for SqueezeNet). Large ones take ten times as long, and then it soon is over with the difference.
const TURN: Duration = Duration::from_millis(100);

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Jobs.
    pub jobs: usize,
    /// Bytes of all jobs together.
    pub bytes: usize,
}

/// A job that was not taken because it would go beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the queue of the lanes is full: {jobs} jobs with {bytes} bytes wait, {more} bytes more go beyond its limits of \
     {} jobs and {} bytes; try again when some are done",
    limits.jobs,
    limits.bytes
)]
pub struct QueueFull {
    /// Jobs that wait.
    pub jobs: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Bytes of the job that was refused.
    pub more: usize,
    /// The limits.
    pub limits: QueueLimits,
}

/// Work for the lanes: in turns between tenants by the time they use lanes, in order of arrival within a tenant, bounded
/// in jobs and bytes.
#[derive(Debug)]
pub struct LaneQueue<J> {
    limits: QueueLimits,
    turns: Turns<Entry<J>>,
    jobs: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<J> {
    id: u64,
    bytes: usize,
    job: J,
}

impl<J> LaneQueue<J> {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            turns: Turns::new(TURN),
            jobs: 0,
            bytes: 0,
        }
    }

    /// Jobs that wait.
    pub fn len(&self) -> usize {
        self.jobs
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    /// Bytes of the jobs that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts `job` behind the other work of `tenant`. `id` names it for [`LaneQueue::remove`]; it must be unique.
    ///
    /// # Errors
    /// [`QueueFull`], and the job is dropped.
    pub fn push(&mut self, tenant: &str, id: u64, bytes: usize, job: J) -> Result<(), QueueFull> {
        let in_all = self.bytes.saturating_add(bytes);
        if self.jobs >= self.limits.jobs || in_all > self.limits.bytes {
            return Err(QueueFull {
                jobs: self.jobs,
                bytes: self.bytes,
                more: bytes,
                limits: self.limits,
            });
        }
        self.turns.push(tenant, Entry { id, bytes, job });
        self.jobs += 1;
        self.bytes = in_all;
        Ok(())
    }

    /// The job to do next, and whose it is; [`LaneQueue::ran`] must follow.
    pub fn pop(&mut self) -> Option<(Arc<str>, J)> {
        let (tenant, entry) = self.turns.begin()?;
        Some((tenant, self.take(entry)))
    }

    /// A job of this tenant's is over and held its lane for `time`.
    pub fn ran(&mut self, tenant: &str, time: Duration) {
        self.turns.ran(tenant, time);
    }

    /// Takes the job `id` out, wherever it stands. `None` when it does not wait (any more).
    pub fn remove(&mut self, id: u64) -> Option<J> {
        self.remove_entry(|entry| entry.id == id)
    }

    /// Takes out every job that `condition` holds for, oldest first within a tenant.
    pub fn remove_where(&mut self, condition: impl Fn(&J) -> bool) -> Vec<J> {
        std::iter::from_fn(|| self.remove_entry(|entry| condition(&entry.job))).collect()
    }

    /// The jobs that wait, in no order to rely on.
    pub fn iter(&self) -> impl Iterator<Item = &J> {
        self.turns.iter().map(|entry| &entry.job)
    }

    fn remove_entry(&mut self, condition: impl Fn(&Entry<J>) -> bool) -> Option<J> {
        let entry = self.turns.remove(condition)?;
        Some(self.take(entry))
    }

    fn take(&mut self, entry: Entry<J>) -> J {
        self.jobs -= 1;
        self.bytes -= entry.bytes;
        entry.job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(jobs: usize, bytes: usize) -> LaneQueue<u64> {
        LaneQueue::new(QueueLimits { jobs, bytes })
    }

    /// The next job, done in one turn's usual time.
    fn run(queue: &mut LaneQueue<u64>) -> Option<u64> {
        let (tenant, job) = queue.pop()?;
        queue.ran(&tenant, TURN);
        Some(job)
    }

    fn order(mut queue: LaneQueue<u64>) -> Vec<u64> {
        std::iter::from_fn(|| run(&mut queue)).collect()
    }

    #[test]
    fn tenants_take_turns_and_keep_their_own_order() {
        let mut queue = queue(100, 100);
        for (tenant, id) in [("a", 1), ("a", 2), ("a", 3), ("b", 10), ("c", 20), ("b", 11)] {
            queue.push(tenant, id, 1, id).unwrap();
        }
        assert_eq!(order(queue), [1, 10, 20, 2, 11, 3]);
    }

    #[test]
    fn long_jobs_come_less_often() {
        let mut queue = queue(100, 100);
        for id in 0..10 {
            queue.push("long", id, 1, id).unwrap();
            queue.push("short", 10 + id, 1, 10 + id).unwrap();
        }
        let first: Vec<u64> = (0..8)
            .map(|_| {
                let (tenant, job) = queue.pop().unwrap();
                queue.ran(&tenant, if &*tenant == "long" { TURN * 6 } else { TURN });
                job
            })
            .collect();
        assert_eq!(first.iter().filter(|job| **job < 10).count(), 2, "{first:?}");
    }

    #[test]
    fn limits_hold_in_jobs_and_in_bytes() {
        let mut queue = queue(2, 10);
        queue.push("a", 1, 6, 1).unwrap();
        let refused = queue.push("b", 2, 5, 2).unwrap_err();
        assert_eq!((refused.jobs, refused.bytes, refused.more), (1, 6, 5));
        assert!(
            refused.to_string().contains("limits of 2 jobs and 10 bytes"),
            "{refused}"
        );
        assert!(queue.push("b", 2, usize::MAX, 2).is_err());
        queue.push("b", 2, 4, 2).unwrap();
        assert!(queue.push("b", 3, 0, 3).is_err());
        assert_eq!(run(&mut queue), Some(1));
        queue.push("b", 3, 6, 3).unwrap();
    }

    #[test]
    fn a_removed_job_is_gone_and_its_room_free() {
        let mut queue = queue(3, 10);
        for id in 1..=3 {
            queue.push("a", id, 3, id).unwrap();
        }
        assert_eq!(queue.remove(2), Some(2));
        assert_eq!(queue.remove(2), None);
        assert_eq!((queue.len(), queue.bytes()), (2, 6));
        assert_eq!(queue.remove_where(|job| *job > 2), [3]);
        assert_eq!(order(queue), [1]);
    }

    proptest! {
        /// Whatever happens, nothing is lost or doubled, counts agree, and turns of equal length go round.
        #[test]
        fn counts_agree_and_nobody_starves(
            steps in prop::collection::vec((0_u8..4, 0_usize..5, 0_u64..40), 1..200),
        ) {
            let mut queue = queue(20, 60);
            let mut waiting: Vec<(String, u64, usize)> = Vec::new();
            for (id, (action, tenant, target)) in (1000_u64..).zip(steps) {
                match action {
                    0 => {
                        if let Some(job) = run(&mut queue) {
                            let at = waiting.iter().position(|(_, other, _)| *other == job).unwrap();
                            let (tenant, ..) = waiting.remove(at);
                            prop_assert!(!waiting[..at].iter().any(|(other, ..)| *other == tenant));
                        } else {
                            prop_assert!(waiting.is_empty());
                        }
                    }
                    1 => {
                        let job = waiting.get(target as usize).map(|(_, id, _)| *id).unwrap_or(target);
                        let known = waiting.iter().any(|(_, id, _)| *id == job);
                        prop_assert_eq!(queue.remove(job).is_some(), known);
                        waiting.retain(|(_, id, _)| *id != job);
                    }
                    _ => {
                        let bytes = target as usize % 7;
                        let in_all: usize = waiting.iter().map(|(.., bytes)| bytes).sum();
                        let fits = waiting.len() < 20 && in_all + bytes <= 60;
                        let tenant = format!("t{tenant}");
                        prop_assert_eq!(queue.push(&tenant, id, bytes, id).is_ok(), fits);
                        if fits {
                            waiting.push((tenant, id, bytes));
                        }
                    }
                }
                prop_assert_eq!(queue.len(), waiting.len());
                prop_assert_eq!(queue.iter().count(), waiting.len());
                prop_assert_eq!(queue.bytes(), waiting.iter().map(|(.., bytes)| bytes).sum::<usize>());
            }
            let tenants: std::collections::BTreeSet<_> = waiting.iter().map(|(tenant, ..)| tenant.clone()).collect();
            let turn: std::collections::BTreeSet<_> = (0..tenants.len())
                .map(|_| run(&mut queue).unwrap())
                .map(|job| waiting.iter().find(|(_, id, _)| *id == job).unwrap().0.clone())
                .collect();
            prop_assert_eq!(turn, tenants, "one turn serves each tenant once");
        }
    }
}
