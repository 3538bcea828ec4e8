//! Runs guest calls on dedicated threads, each with a permit and a new instance.

use crate::bindings::{FrozenPrefix, FrozenPrefixPre};
use crate::config::SandboxConfig;
use crate::engine;
use crate::error::SandboxError;
use crate::meter::metered;
use crate::state::{CallState, GuestTensor};
use crate::threads::GuestThreads;
use frostline_batching::{Permit, Share, TurnGate};
use frostline_tensor::{Cause, Tensor};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::Resource;
use wasmtime::{Engine, Store};

pub(crate) struct Runner {
    pub(crate) config: SandboxConfig,
    pub(crate) engine: Engine,
    pub(crate) threads: GuestThreads,
    instances: Arc<TurnGate>,
}

impl Runner {
    pub(crate) fn start(config: SandboxConfig) -> Result<Self, SandboxError> {
        Ok(Self {
            engine: engine::start(&config)?,
            threads: GuestThreads::start(config.guest_threads, engine::TICK)?,
            instances: TurnGate::open(config.instances as usize, usize::MAX),
            config,
        })
    }

    /// Waits for a permit to instantiate a guest.
    pub(crate) async fn permit(&self, tenant: &str) -> Result<Permit, SandboxError> {
        let after = self.config.permit_deadline;
        let permit = {
            // Required for callers outside of a Tokio runtime.
            let _timers = self.threads.handle().enter();
            tokio::time::timeout(after, self.instances.enter(tenant, Share::Adaptive))
        };
        let in_time = permit.await.map_err(|_| SandboxError::Busy { after })?;
        Ok(in_time?)
    }

    /// Instantiates `guest` under `permit` and calls it. A trap discards the instance.
    pub(crate) async fn call<T>(
        &self,
        guest: &FrozenPrefixPre<CallState>,
        permit: Permit,
        state: CallState,
        deadline: Duration,
        call: impl AsyncFnOnce(&FrozenPrefix, &mut Store<CallState>) -> wasmtime::Result<T>,
    ) -> Result<(Instance, T), SandboxError> {
        let mut instance = Instance {
            store: self.store(state),
            _permit: permit,
        };
        let store = &mut instance.store;
        let state = store.data();
        let meter = Arc::clone(&state.meter);
        let allowance = Arc::clone(&state.allowance);
        let run = metered(&meter, allowance, async {
            let guest = guest.instantiate_async(&mut *store).await?;
            call(&guest, store).await
        });
        let error = match tokio::time::timeout(deadline, run).await {
            Ok(Ok(answered)) => return Ok((instance, answered)),
            Ok(Err(error)) => {
                let last_words = instance.store.data_mut().last_words.take();
                SandboxError::from_trap(&error, self.config.handles, last_words)
            }
            Err(_) => instance.store.data().deadline_error(deadline),
        };
        Err(error.or_host_error(instance.store.data_mut().host_error.take()))
    }

    /// Creates the store of a call. Sets the resource limits and the interruption at each tick.
    fn store(&self, state: CallState) -> Store<CallState> {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| state);
        // Limits the bytes passed to the host in a call. A list can refer to the same megabyte a million
        // times.
        store.set_hostcall_fuel(self.config.memory_bytes.saturating_mul(2));
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store
    }
}

/// Instance of a call with the permit. The field order matters. If the permit were released first, the next
/// call could find the pool full.
pub(crate) struct Instance {
    pub(crate) store: Store<CallState>,
    _permit: Permit,
}

impl Instance {
    /// Takes the tensors returned by the guest and drops the rest of the store.
    pub(crate) fn take_tensors(
        mut self,
        handles: Vec<(String, Resource<GuestTensor>)>,
    ) -> Result<Vec<(String, Tensor)>, SandboxError> {
        let mut tensors = Vec::new();
        for (name, handle) in handles {
            let held = self.store.data_mut().table.delete(handle);
            let held = held.map_err(|error| {
                SandboxError::bad_answer(Cause::with_message("the tensor handle is invalid", error))
            })?;
            let tensor = match held.pixels {
                Some(pixels) => pixels.apply(&held.tensor).map_err(SandboxError::bad_answer)?,
                None => held.tensor,
            };
            tensors.push((name, tensor));
        }
        Ok(tensors)
    }
}
