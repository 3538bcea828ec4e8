//! Worker threads with sessions, behind a bounded queue.

mod batch;
mod child;
mod config;
mod engine;
mod execute;
mod job;
mod lane;
mod load;
mod order;
mod overdue;
mod pending;
mod preparing;
mod quarantine;
mod run;
mod settle;
mod shared;
mod source;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod threads;
mod waits;

#[cfg(test)]
pub(crate) use child::usage;
pub use child::{ConfinedLane, enter_lane};
pub use config::{Begun, ChildLanes, Isolation, LanesConfig, LanesPlace, OnBegin, PreparedStages};
pub use source::StageSource;
pub use stats::LaneStats;

use crate::{EngineError, library};
use frostline_batching::device::OwnRate;
use frostline_tensor::{BoxFuture, ExecutionTerms, GraphExecutor, OpError, Stage, Tensor};
use parking_lot::Mutex;
use run::Submitter;
use shared::Shared;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lanes: threads with separate sessions, which can be in child processes. A
/// [`Device`](frostline_batching::device::Device) selects which rows run on which lane. It splits large
/// submissions and joins small ones.
///
/// Submissions are queued immediately, even if the future is never polled. Dropping the future removes the
/// submission from the queue, or ends the engine batch if no other submission has rows in it. A failure only
/// affects the submissions in the same batch; the lane continues.
pub struct Lanes {
    shared: Arc<Shared>,
    lanes: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// [`Lanes`] on behalf of a tenant.
#[derive(Clone)]
pub struct TenantLanes {
    shared: Arc<Shared>,
    customer: Submitter,
}

impl Lanes {
    /// Loads ONNX Runtime and starts as many of the configured lanes as fit into `config.memory`, with their
    /// child processes if configured.
    ///
    /// # Errors
    /// Returns an error if ONNX Runtime or the device cannot be used, so a misconfigured host fails at
    /// startup. Returns [`EngineError::Threads`] or [`EngineError::Process`] if a lane cannot be started, and
    /// [`EngineError::Memory`] if the memory is too small for a single lane.
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
        let wanted = lanes.shared.config.lanes;
        for index in 0..wanted {
            let started = started.clone();
            lanes.spawn(format!("lane-{index}"), move |shared| {
                threads::lane(shared, index, started)
            })?;
        }
        drop(started);
        let preparations = lanes.shared.state.lock().preparations.slots();
        for slot in 0..preparations {
            lanes.spawn(format!("lanes-prepare-{slot}"), move |shared| {
                threads::prepare(shared, slot)
            })?;
        }
        lanes.spawn("lanes-clock".to_owned(), Shared::watch)?;
        lanes.lanes = working(wanted, &lane_started)?;
        Ok(lanes)
    }

    /// Returns the number of started lanes, which is lower than configured if memory was too small.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the rates of stages that executed rows of `tenant`, measured with these rows only.
    pub fn rates_of(&self, tenant: &str) -> Vec<(Stage, OwnRate)> {
        let state = self.shared.state.lock();
        let rates = state.device.rates_of(tenant);
        rates.map(|(stage, rate)| (stage.clone(), rate)).collect()
    }

    /// Closes the idle sessions and deletes the prepared stages of all models (SHA-256) for which `keep` returns
    /// false. Sessions in use stay open. Blocks.
    ///
    /// # Errors
    /// Returns the error of the operating system if a folder cannot be read or deleted.
    pub fn retain_models(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        self.shared.state.lock().retain_models(&keep);
        self.shared.work.notify_all();
        let prepared = self.shared.networks.prepared.as_ref();
        prepared.map_or(Ok(()), |prepared| prepared.retain(keep))
    }

    /// Returns the lanes on behalf of `tenant`, which shares them fairly with other tenants.
    pub fn for_tenant(&self, tenant: &str) -> TenantLanes {
        TenantLanes {
            shared: Arc::clone(&self.shared),
            customer: Submitter::new(tenant),
        }
    }

    /// Returns the current load and the totals since the start.
    pub fn stats(&self) -> LaneStats {
        LaneStats {
            over_limit: self.shared.networks.guards.ended(),
            ..self.shared.state.lock().stats(Instant::now())
        }
    }

    /// Returns the bytes that lanes in child processes and the processes that prepare networks use beyond
    /// their reservations, as measured by this process.
    pub fn unreserved_bytes(&self) -> u64 {
        self.shared.networks.guards.unreserved_bytes()
    }

    /// Returns the configuration with the effective limits.
    pub fn config(&self) -> &LanesConfig {
        &self.shared.config
    }

    /// Refuses new submissions, waits up to `grace` until the accepted ones are finished, ends the rest, and
    /// joins the threads. Blocks. Further calls have no effect.
    pub fn shutdown(&self, grace: Duration) {
        self.shared.drain(grace);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a lane thread panicked");
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a fixed number of threads per lane")]
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
    /// Returns the same lanes with `terms` for a tenant of this `weight`. Under contention, the tenant
    /// receives `weight` times the device time of a tenant with weight 1. The minimum weight is 1.
    #[must_use]
    pub fn on_terms(&self, weight: u32, terms: ExecutionTerms) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            customer: Submitter {
                weight: weight.max(1),
                terms,
                ..self.customer.clone()
            },
        }
    }
}

/// Returns the number of lanes that started.
///
/// # Errors
/// Returns the first error. [`EngineError::Memory`] is only an error if no lane started.
fn working(wanted: usize, started: &mpsc::Receiver<Result<(), EngineError>>) -> Result<usize, EngineError> {
    let mut lanes = 0;
    let mut lacking = None;
    for started in started {
        match started {
            Ok(()) => lanes += 1,
            Err(error @ EngineError::Memory { .. }) => lacking = Some(error),
            Err(error) => return Err(error),
        }
    }
    match lacking {
        Some(error) if lanes == 0 => return Err(error),
        Some(error) => {
            tracing::warn!(%error, lanes, wanted, "started fewer lanes than configured because of too little memory")
        }
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
    /// Submits the batch as the tenant with an empty name.
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        pending::submit(&self.shared, &Submitter::new(""), stage, batch)
    }
}

impl GraphExecutor for TenantLanes {
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        pending::submit(&self.shared, &self.customer, stage, batch)
    }
}
