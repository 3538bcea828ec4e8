//! Engine worker threads that own their sessions, behind one bounded queue.

mod batch;
mod child;
mod config;
mod engine;
mod execute;
mod job;
mod lane;
mod order;
mod pending;
mod quarantine;
mod run;
mod settle;
mod shared;
mod source;
mod state;
mod stats;
mod threads;
mod waits;

#[cfg(test)]
pub(crate) use child::usage;
pub use child::{ConfinedLane, enter_lane};
pub use config::{Begun, ChildLanes, Isolation, LanesConfig, LanesPlace, OnBegin, PreparedStages};
pub use source::StageSource;
pub use stats::LaneStats;

use crate::{EngineError, library};
use frostline_batching::device::StageFigures;
use frostline_tensor::{BoxFuture, GraphExecutor, OpError, RunTerms, Stage, Tensor};
use parking_lot::Mutex;
use run::Customer;
use shared::Shared;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Lanes: each a thread with sessions of its own. A [`Device`](frostline_batching::Device) decides which rows of whose submissions run
/// where: large ones are cut, small ones joined.
///
/// A submission is queued before its future is first polled. Dropping the future takes the work out of the queue, or
/// ends its run where nobody else is in it. Whatever goes wrong in one piece of work stays there: its submission gets the error, the lane
/// goes on.
pub struct Lanes {
    shared: Arc<Shared>,
    lanes: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// [`Lanes`] on behalf of one tenant.
#[derive(Clone)]
pub struct TenantLanes {
    shared: Arc<Shared>,
    customer: Customer,
}

impl Lanes {
    /// Loads ONNX Runtime and starts the lanes, with their processes where they have such: as many as `config.memory` has room for.
    ///
    /// # Errors
    /// The library's and the device's, so that a host that cannot work does not start; [`EngineError::Threads`];
    /// [`EngineError::Process`]; [`EngineError::Memory`] when there is no room for one lane.
    pub fn start(config: LanesConfig, source: Arc<dyn StageSource>) -> Result<Self, EngineError> {
        library::environment()?;
        if config.place == LanesPlace::InProcess {
            crate::session::check_device(config.device)?;
        }
        let mut lanes = Self {
            shared: Shared::new(config.checked(), source),
            lanes: 0,
            threads: Mutex::new(Vec::new()),
        };
        let (started, lane_started) = mpsc::channel();
        let wanted = lanes.shared.config().lanes;
        for index in 0..wanted {
            let started = started.clone();
            lanes.spawn(format!("lane-{index}"), move |shared| {
                threads::lane(shared, index, started)
            })?;
        }
        drop(started);
        lanes.spawn("lanes-clock".to_owned(), Shared::watch)?;
        lanes.lanes = working(wanted, &lane_started)?;
        Ok(lanes)
    }

    /// Lanes that were started: fewer than configured where memory has no room for more.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// What is known of the stages that were submitted lately.
    pub fn stage_figures(&self) -> Vec<(Stage, StageFigures)> {
        self.shared.figures()
    }

    /// Removes what was prepared on disk of models, by SHA-256, that `keep` does not. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn retain_models(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        self.shared.source().retain(keep)
    }

    /// The lanes on behalf of `tenant`, whose work takes turns with that of others.
    pub fn for_tenant(&self, tenant: &str) -> TenantLanes {
        TenantLanes {
            shared: Arc::clone(&self.shared),
            customer: Customer::new(tenant),
        }
    }

    /// What the lanes do now and have done.
    pub fn stats(&self) -> LaneStats {
        self.shared.stats()
    }

    /// How the lanes were started, with the limits that hold.
    pub fn config(&self) -> &LanesConfig {
        self.shared.config()
    }

    /// Takes no more work, finishes what is there for at most `grace`, ends the rest, and returns when the threads are
    /// gone. Blocks; a second call only waits.
    pub fn shutdown(&self, grace: Duration) {
        self.shared.drain(grace);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the lanes panicked");
            }
        }
    }

    fn spawn(&self, name: String, run: impl FnOnce(&Shared) + Send + 'static) -> Result<(), EngineError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(&shared))
            .map_err(|error| EngineError::Threads { reason: error.into() })?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

impl TenantLanes {
    /// The same lanes on `terms`, for a tenant that gets `weight` times as much of the device as one of weight 1 beside it.
    #[must_use]
    pub fn on_terms(&self, weight: u32, terms: RunTerms) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            customer: Customer {
                weight: weight.max(1),
                terms,
                ..self.customer.clone()
            },
        }
    }
}

/// How many of the `wanted` lanes work.
fn working(wanted: usize, started: &mpsc::Receiver<Result<(), EngineError>>) -> Result<usize, EngineError> {
    let (mut lanes, mut lacking) = (0, None);
    for started in started {
        match started {
            Ok(()) => lanes += 1,
            Err(error @ EngineError::Memory { .. }) => lacking = Some(error),
            Err(error) => return Err(error),
        }
    }
    match lacking {
        Some(error) if lanes == 0 => return Err(error),
        Some(error) => tracing::warn!(%error, lanes, wanted, "fewer lanes are started than there could be"),
        None => {}
    }
    Ok(lanes)
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

impl GraphExecutor for Lanes {
    /// Submits as the tenant without a name.
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        pending::submit(&self.shared, &Customer::new(""), stage, batch)
    }
}

impl GraphExecutor for TenantLanes {
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        pending::submit(&self.shared, &self.customer, stage, batch)
    }
}
