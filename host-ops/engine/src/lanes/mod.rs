//! Engine worker threads that own their sessions, behind one bounded queue.

mod batch;
mod child;
mod config;
mod engine;
mod execute;
mod pending;
mod quarantine;
mod run;
mod shared;
mod source;
mod state;
mod stats;
mod threads;

pub use child::serve_lane;
pub use config::{ChildLanes, LanesConfig, LanesPlace, PreparedStages};
pub use source::StageSource;
pub use stats::LaneStats;

use crate::{EngineError, library};
use frostline_tensor::{BoxFuture, GraphExecutor, OpError, RunTerms, Stage, Tensor};
use parking_lot::Mutex;
use run::Customer;
use shared::Shared;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Lanes: each a thread with sessions of its own, all fed from one bounded queue that is fair between tenants.
///
/// A submission is queued before its future is first polled. Dropping the future takes the work out of the queue, or
/// ends it where it runs. Whatever goes wrong in one piece of work stays there: its submission gets the error, the lane
/// goes on.
pub struct Lanes {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// [`Lanes`] on behalf of one tenant.
#[derive(Clone)]
pub struct TenantLanes {
    shared: Arc<Shared>,
    customer: Customer,
}

impl Lanes {
    /// Loads ONNX Runtime and starts the lanes, with their processes where they have such.
    ///
    /// # Errors
    /// The library's and the device's, so that a host that cannot work does not start; [`EngineError::Threads`];
    /// [`EngineError::Process`].
    pub fn start(config: LanesConfig, source: Arc<dyn StageSource>) -> Result<Self, EngineError> {
        library::environment()?;
        if config.place == LanesPlace::InProcess {
            crate::session::check_device(config.device)?;
        }
        let shared = Arc::new(Shared::new(config.checked(), source));
        let lanes = Self {
            shared: Arc::clone(&shared),
            threads: Mutex::new(Vec::new()),
        };
        let (started, lane_started) = mpsc::channel();
        for index in 0..shared.config().lanes {
            let started = started.clone();
            lanes.spawn(format!("lane-{index}"), move |shared| {
                threads::lane(shared, index, started)
            })?;
        }
        drop(started);
        lanes.spawn("lanes-clock".to_owned(), Shared::watch)?;
        lane_started.iter().collect::<Result<(), _>>()?;
        Ok(lanes)
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
