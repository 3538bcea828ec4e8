use crate::turns::Turns;
use frostline_primitives::Lock;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

/// Threads that execute items of tenants in turns. The tenant with the least thread time is next. Within a
/// tenant, items are executed in order of arrival.
///
/// The queue is unbounded, so callers must limit what they push. Dropping the pool drops the waiting items
/// and ends the threads.
pub struct TurnPool<T> {
    queue: Arc<Queue<T>>,
    threads: usize,
}

struct Queue<T> {
    state: Lock<PoolState<T>>,
    more: Condvar,
}

struct PoolState<T> {
    turns: Turns<(u64, T)>,
    pushed: u64,
    closed: bool,
}

impl<T: Send + 'static> TurnPool<T> {
    /// Starts `threads` threads, or one if it is 0, that call `run` with each pushed item. A panic ends the
    /// item, not the thread. `clock` returns the time that the calling thread has used. Running turns are
    /// charged with `guess` until they finish.
    ///
    /// # Errors
    /// Returns the operating system's error if it cannot create a thread.
    pub fn start(
        name: &str,
        threads: usize,
        guess: Duration,
        clock: impl Fn() -> Duration + Clone + Send + 'static,
        run: impl Fn(T) + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let state = PoolState {
            turns: Turns::new(guess),
            pushed: 0,
            closed: false,
        };
        let pool = Self {
            queue: Arc::new(Queue {
                state: Lock::new(state),
                more: Condvar::new(),
            }),
            threads: threads.max(1),
        };
        for number in 0..pool.threads {
            let queue = Arc::clone(&pool.queue);
            let clock = clock.clone();
            let run = run.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            #[expect(clippy::disallowed_methods, reason = "a fixed number of threads with turns")]
            thread.spawn(move || queue.serve(clock, run))?;
        }
        Ok(pool)
    }
}

impl<T> TurnPool<T> {
    /// Queues an item of a tenant. Returns an id for [`Self::remove`].
    pub fn push(&self, tenant: &str, thing: T) -> u64 {
        let mut state = self.queue.state.lock();
        state.pushed += 1;
        let id = state.pushed;
        state.turns.push(tenant, (id, thing));
        drop(state);
        self.queue.more.notify_one();
        id
    }

    /// Removes and returns the item `id` if no thread has started it.
    pub fn remove(&self, id: u64) -> Option<T> {
        let mut state = self.queue.state.lock();
        state
            .turns
            .remove(|(other, _)| *other == id)
            .map(|(_, thing)| thing)
    }

    /// Number of waiting items.
    pub fn waiting(&self) -> usize {
        self.queue.state.lock().turns.queues().map(VecDeque::len).sum()
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }
}

impl<T> Drop for TurnPool<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.queue.state.lock();
            state.closed = true;
            state.turns.drain()
        };
        self.queue.more.notify_all();
        // Dropped outside of the lock, because it may wake other threads.
        drop(left);
    }
}

impl<T> Queue<T> {
    /// Executes items until the pool is dropped.
    fn serve(&self, clock: impl Fn() -> Duration, run: impl Fn(T)) {
        while let Some((tenant, thing)) = self.next() {
            let before = clock();
            // The item is dropped with any inconsistent state.
            let _ = catch_unwind(AssertUnwindSafe(|| run(thing)));
            let time = clock().saturating_sub(before);
            self.state.lock().turns.ran(&tenant, time);
        }
    }

    fn next(&self) -> Option<(Arc<str>, T)> {
        let mut state = self.state.lock();
        while !state.closed {
            if let Some((tenant, (_, thing))) = state.turns.start_next() {
                return Some((tenant, thing));
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    type PoolTask = Box<dyn FnOnce() + Send>;

    fn pool() -> TurnPool<PoolTask> {
        TurnPool::start(
            "test",
            1,
            Duration::from_millis(1),
            || Duration::ZERO,
            |work: PoolTask| work(),
        )
        .unwrap()
    }

    /// Occupies the pool's only thread until the sender is used or dropped.
    fn busy(pool: &TurnPool<PoolTask>) -> Sender<()> {
        let (release, gate) = channel::<()>();
        let (at_work, begun) = channel();
        let wait = move || {
            at_work.send(()).unwrap();
            let _ = gate.recv();
        };
        pool.push("busy", Box::new(wait));
        begun.recv().unwrap();
        release
    }

    /// Pushes work that sends `number`.
    fn says(pool: &TurnPool<PoolTask>, tenant: &str, number: u32) -> (u64, Receiver<u32>) {
        let (says, said) = channel();
        let id = pool.push(tenant, Box::new(move || says.send(number).unwrap()));
        (id, said)
    }

    #[test]
    fn a_panic_ends_only_what_panicked() {
        let pool = pool();
        pool.push("acme", Box::new(|| panic!("on purpose")));
        assert_eq!(says(&pool, "acme", 7).1.recv(), Ok(7));
    }

    #[test]
    fn removed_items_are_not_executed() {
        let pool = pool();
        let release = busy(&pool);
        let (id, never) = says(&pool, "acme", 1);
        let (_, later) = says(&pool, "acme", 2);
        assert!(pool.remove(id).is_some() && pool.remove(id).is_none());
        assert_eq!(pool.waiting(), 1);
        assert!(never.recv().is_err());
        drop(release);
        assert_eq!(later.recv(), Ok(2));
    }

    #[test]
    fn dropping_the_pool_drops_waiting_items() {
        let pool = pool();
        let _release = busy(&pool);
        let (_, never) = says(&pool, "acme", 1);
        drop(pool);
        assert!(never.recv().is_err());
    }
}
