use crate::Turns;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// [`Turns`] that threads wait for. It does not bound what is ready: who pushes does.
#[derive(Debug)]
pub struct TurnQueue<T> {
    state: Mutex<State<T>>,
    more: Condvar,
}

#[derive(Debug)]
struct State<T> {
    turns: Turns<T>,
    closed: bool,
}

impl<T> TurnQueue<T> {
    /// An empty queue; `guess` as for [`Turns::new`].
    pub fn new(guess: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                turns: Turns::new(guess),
                closed: false,
            }),
            more: Condvar::new(),
        }
    }

    /// Something of this tenant's is ready; dropped when the queue is closed.
    pub fn push(&self, tenant: &str, thing: T) {
        let mut state = self.lock();
        if state.closed {
            // Dropped after the lock: that may wake others.
            drop(state);
            drop(thing);
            return;
        }
        state.turns.push(tenant, thing);
        drop(state);
        self.more.notify_one();
    }

    /// Waits for the next turn: what is to run, and whose it is; `None` once the queue is closed. [`Self::ran`] must follow.
    pub fn next(&self) -> Option<(Arc<str>, T)> {
        let mut state = self.lock();
        while !state.closed {
            if let Some(next) = state.turns.begin() {
                return Some(next);
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// A turn of this tenant's is over and took `time`.
    pub fn ran(&self, tenant: &str, time: Duration) {
        self.lock().turns.ran(tenant, time);
    }

    /// How many things wait for a turn.
    pub fn waiting(&self) -> usize {
        self.lock().turns.iter().count()
    }

    /// Gives out no more turns and drops what is ready.
    pub fn close(&self) {
        let left = {
            let mut state = self.lock();
            state.closed = true;
            state.turns.drain()
        };
        self.more.notify_all();
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing inside can be left half-done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_what_comes_and_nothing_once_it_is_closed() {
        let queue = Arc::new(TurnQueue::new(Duration::from_millis(1)));
        let waiting = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let mut seen = Vec::new();
                while let Some((tenant, thing)) = queue.next() {
                    queue.ran(&tenant, Duration::from_millis(1));
                    seen.push(thing);
                }
                seen
            }
        });
        let held = Arc::new(());
        queue.push("acme", Arc::clone(&held));
        while queue.waiting() > 0 {
            std::thread::yield_now();
        }
        queue.close();
        queue.push("acme", Arc::clone(&held));
        assert_eq!(waiting.join().unwrap().len(), 1);
        assert!(queue.next().is_none());
        assert_eq!(Arc::strong_count(&held), 1, "what came too late is dropped");
    }
}
