use super::ask::{Ask, Budget, OutOfBudget};
use super::kind::Kind;
use super::ledger::Ledger;
use crate::waiters::{HeldShare, Waiters};
use parking_lot::RwLock;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The host's memory budget and the queue of waiting requests. The budget includes lanes. Clones share the
/// same budget.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

type Tell = dyn Fn() + Send + Sync;
type GiveBack = dyn Fn(u64) + Send + Sync;

struct Inner {
    ledger: Arc<Waiters<Ledger>>,
    /// Called when memory becomes available.
    on_room: RwLock<Vec<Box<Tell>>>,
    /// Called to release a number of bytes from caches.
    on_pressure: RwLock<Vec<Box<GiveBack>>>,
}

/// Bytes reserved from [`Memory`] and released on drop.
#[must_use = "dropping the reservation releases the memory"]
pub struct Reserved {
    /// `None` only while dropping.
    held: Option<HeldShare<Ledger>>,
    memory: Memory,
}

/// Samples of a guest call and the reserved memory.
pub struct Grant {
    /// Number of samples, from 1 to the requested number.
    pub samples: usize,
    /// Memory reserved for the samples.
    pub memory: Reserved,
}

impl Memory {
    /// Creates a budget without reservations.
    pub fn new(budget: Budget) -> Self {
        Self(Arc::new(Inner {
            ledger: Waiters::new(Ledger::new(budget)),
            on_room: RwLock::default(),
            on_pressure: RwLock::default(),
        }))
    }

    /// Creates an unlimited budget, for programs that only execute trusted work.
    pub fn unbounded() -> Self {
        Self::new(Budget {
            bytes: u64::MAX,
            ..Budget::default()
        })
    }

    /// Waits for `bytes`. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] immediately if this many bytes can never be available.
    pub async fn reserve(&self, tenant: &str, kind: Kind, bytes: u64) -> Result<Reserved, OutOfBudget> {
        self.ask(tenant, Ask::exactly(kind, bytes)).await
    }

    /// Waits for the memory required by a guest call. Requests `fixed` bytes and `each` bytes per sample, for
    /// up to `samples` samples. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] immediately if even one sample can never fit.
    pub async fn grant(
        &self,
        tenant: &str,
        samples: usize,
        fixed: u64,
        each: u64,
    ) -> Result<Grant, OutOfBudget> {
        let ask = Ask {
            kind: Kind::Grant,
            fixed,
            each,
            units: samples,
        };
        let memory = self.ask(tenant, ask).await?;
        Ok(Grant {
            samples: memory.held.as_ref().map_or(1, |held| held.units),
            memory,
        })
    }

    async fn ask(&self, tenant: &str, ask: Ask) -> Result<Reserved, OutOfBudget> {
        let waiting = self.0.ledger.ask(tenant, ask)?;
        self.relieve();
        // The queue is never closed.
        Ok(self.reserved(waiting.await))
    }

    /// Reserves memory immediately.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] if less memory is available now.
    pub fn try_reserve(&self, tenant: &str, kind: Kind, bytes: u64) -> Result<Reserved, OutOfBudget> {
        let held = self
            .0
            .ledger
            .take_at_once(|ledger| ledger.reserve(tenant, kind, bytes))?;
        Ok(self.reserved(Some(held)))
    }

    /// Reserves memory for a cache of the host. Returns `None` if it is not available now. Caches count for no
    /// tenant, because they are released when memory is short.
    pub fn try_cache(&self, bytes: u64) -> Option<Reserved> {
        self.try_reserve("", Kind::Cache, bytes).ok()
    }

    /// Same as [`Self::reserve`], for threads. Waits up to `longest`.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] if `bytes` can never be available or did not become available in time.
    pub fn reserve_blocking(
        &self,
        tenant: &str,
        kind: Kind,
        bytes: u64,
        longest: Duration,
    ) -> Result<Reserved, OutOfBudget> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let until = Instant::now() + longest;
        let mut waiting = pin!(self.reserve(tenant, kind, bytes));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(reserved) = waiting.as_mut().poll(&mut context) {
                return reserved;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (room, budget) = self.read(|ledger| (ledger.room(kind), ledger.budget().bytes));
                return Err(OutOfBudget {
                    needed: bytes,
                    most: room,
                    budget,
                });
            }
            std::thread::park_timeout(left);
        }
    }

    /// Calls `read` with the ledger.
    pub fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.0.ledger.with_policy(read)
    }

    /// Sets the bytes that the host's process uses without a reservation.
    pub fn set_base(&self, bytes: u64) {
        self.0.ledger.change(|ledger| ledger.set_base(bytes));
        self.relieve();
        self.tell_room();
    }

    /// Registers a callback for released memory. It is called on the thread that released the memory, and
    /// must not wait or drop reservations.
    pub fn on_room(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.0.on_room.write().push(Box::new(tell));
    }

    /// Registers a callback that receives the number of missing bytes. It is called on the thread that needs
    /// memory, sets the base or requests the release. The callback should drop reservations of caches and
    /// must not wait.
    pub fn on_pressure(&self, give_back: impl Fn(u64) + Send + Sync + 'static) {
        self.0.on_pressure.write().push(Box::new(give_back));
    }

    /// Asks caches to release `bytes`, for a caller that does not wait in the ledger.
    pub fn request_release(&self, bytes: u64) {
        self.0
            .on_pressure
            .read()
            .iter()
            .for_each(|give_back| give_back(bytes));
    }

    /// Asks caches to release memory while a request is short of it.
    fn relieve(&self) {
        for give_back in self.0.on_pressure.read().iter() {
            match self.read(Ledger::shortage) {
                0 => return,
                lacking => give_back(lacking),
            }
        }
    }

    fn tell_room(&self) {
        self.0.on_room.read().iter().for_each(|tell| tell());
    }

    fn reserved(&self, held: Option<HeldShare<Ledger>>) -> Reserved {
        Reserved {
            held,
            memory: self.clone(),
        }
    }
}

impl Reserved {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Changes the reservation to `bytes` immediately.
    ///
    /// # Errors
    /// Returns [`OutOfBudget`] if less memory is available now; the reservation remains unchanged.
    pub fn resize(&mut self, bytes: u64) -> Result<(), OutOfBudget> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let shrinks = bytes < held.bytes;
        held.change(|ledger, reservation| ledger.resize(reservation, bytes))?;
        if shrinks {
            self.memory.tell_room();
        }
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        drop(self.held.take());
        self.memory.tell_room();
    }
}
