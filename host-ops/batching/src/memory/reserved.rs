use super::ask::{Ask, Budget, OutOfBudget};
use super::kind::Kind;
use super::ledger::Ledger;
use crate::waiters::{Held, Waiters};
use parking_lot::RwLock;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The memory that a host may hold, its lanes included, and those that wait for some of it. Clones are the same memory.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

type Tell = dyn Fn() + Send + Sync;
type GiveBack = dyn Fn(u64) + Send + Sync;

struct Inner {
    ledger: Arc<Waiters<Ledger>>,
    /// Told that there is more room.
    on_room: RwLock<Vec<Box<Tell>>>,
    /// Asked to give back so many bytes of what is kept only in case.
    on_pressure: RwLock<Vec<Box<GiveBack>>>,
}

/// Bytes of a [`Memory`]; dropping it gives them back.
#[must_use = "dropping it gives the memory back"]
pub struct Reserved {
    /// Until it is dropped.
    held: Option<Held<Ledger>>,
    memory: Memory,
}

/// Samples of one guest's call, and the memory they take.
pub struct Grant {
    /// How many; at least 1.
    pub samples: usize,
    /// Their memory.
    pub memory: Reserved,
}

impl Memory {
    /// Memory of which nobody holds anything.
    pub fn new(budget: Budget) -> Self {
        Self(Arc::new(Inner {
            ledger: Waiters::new(Ledger::new(budget)),
            on_room: RwLock::default(),
            on_pressure: RwLock::default(),
        }))
    }

    /// Memory without a bound, for programs that run what is their own.
    pub fn unbounded() -> Self {
        Self::new(Budget {
            bytes: u64::MAX,
            ..Budget::default()
        })
    }

    /// Waits for `bytes`; dropping the future gives up.
    ///
    /// # Errors
    /// [`OutOfBudget`] at once for more than there can ever be.
    pub async fn reserve(&self, tenant: &str, kind: Kind, bytes: u64) -> Result<Reserved, OutOfBudget> {
        self.ask(tenant, Ask::exactly(kind, bytes)).await
    }

    /// Waits for what a guest's call takes: `fixed` bytes and `each` for every one of up to `samples`; dropping the future gives up.
    ///
    /// # Errors
    /// [`OutOfBudget`] at once where not even one sample can ever fit.
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
        // It is never closed.
        Ok(self.reserved(waiting.await))
    }

    /// Reserves at once or not at all.
    ///
    /// # Errors
    /// [`OutOfBudget`] where there is less now.
    pub fn try_reserve(&self, tenant: &str, kind: Kind, bytes: u64) -> Result<Reserved, OutOfBudget> {
        let held = self
            .0
            .ledger
            .take_at_once(|ledger| ledger.reserve(tenant, kind, bytes))?;
        Ok(self.reserved(Some(held)))
    }

    /// [`Self::reserve`] for threads, `longest` at most.
    ///
    /// # Errors
    /// [`OutOfBudget`] also when there was less all that time.
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

    /// Looks at the ledger.
    pub fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.0.ledger.with_policy(read)
    }

    /// What the host's process holds that nobody reserved is `bytes` from now on.
    pub fn set_base(&self, bytes: u64) {
        self.0.ledger.change(|ledger| ledger.set_base(bytes));
        self.relieve();
        self.tell_room();
    }

    /// Calls `tell` whenever there is more room, from whichever thread gave it back; it must not wait or drop reservations.
    pub fn on_room(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.0.on_room.write().push(Box::new(tell));
    }

    /// Calls `give_back` with how many bytes somebody lacks, from the thread of who asks. It drops reservations of what is kept only in case,
    /// as far as it has some, and waits for nothing.
    pub fn on_pressure(&self, give_back: impl Fn(u64) + Send + Sync + 'static) {
        self.0.on_pressure.write().push(Box::new(give_back));
    }

    /// Somebody who does not wait here lacks `bytes`: asks for what is kept only in case.
    pub fn lack(&self, bytes: u64) {
        self.0
            .on_pressure
            .read()
            .iter()
            .for_each(|give_back| give_back(bytes));
    }

    /// Asks for what is kept only in case where somebody lacks memory.
    fn relieve(&self) {
        for give_back in self.0.on_pressure.read().iter() {
            match self.read(Ledger::lacking) {
                0 => return,
                lacking => give_back(lacking),
            }
        }
    }

    fn tell_room(&self) {
        self.0.on_room.read().iter().for_each(|tell| tell());
    }

    fn reserved(&self, held: Option<Held<Ledger>>) -> Reserved {
        Reserved {
            held,
            memory: self.clone(),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (budget, held) = self.read(|ledger| (ledger.budget(), ledger.held_in_all()));
        let mut shown = formatter.debug_struct("Memory");
        shown.field("budget", &budget).field("held", &held).finish()
    }
}

impl Reserved {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Makes it `bytes`, at once.
    ///
    /// # Errors
    /// [`OutOfBudget`] where there is less now; it stays as it was.
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
