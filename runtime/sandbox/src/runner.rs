//! Runs guest calls: on threads of their own, each with a permit and a fresh instance.

use crate::bindings::{FrozenPrefix, FrozenPrefixPre};
use crate::config::SandboxConfig;
use crate::engine;
use crate::error::SandboxError;
use crate::meter::metered;
use crate::state::{CallState, GuestTensor};
use crate::threads::GuestThreads;
use frostline_batching::{Permit, Share, TurnGate};
use frostline_tensor::{Cause, OpError, PixelSpec, Tensor};
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
            threads: GuestThreads::start(config.guest_threads, config.tick)?,
            instances: TurnGate::open(config.instances as usize, usize::MAX),
            config,
        })
    }

    /// Waits for a permit to instantiate a guest.
    pub(crate) async fn permit(&self, tenant: &str) -> Result<Permit, SandboxError> {
        let after = self.config.permit_deadline;
        let permit = {
            // For callers outside of a runtime.
            let _timers = self.threads.handle().enter();
            tokio::time::timeout(after, self.instances.enter(tenant, Share::AsManyAsItLeaves))
        };
        let in_time = permit.await.map_err(|_| SandboxError::Busy { after })?;
        Ok(in_time?)
    }

    /// Instantiates `guest` under `permit` and calls it. After a trap the instance is discarded.
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
        let (meter, allowance) = (Arc::clone(&state.meter), Arc::clone(&state.allowance));
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
        Err(error.or_host_error(instance.take_host_error()))
    }

    /// A store for one call: limited, and interrupted at every tick.
    fn store(&self, state: CallState) -> Store<CallState> {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| state);
        // Bounds what one call may pass to the host: a list may name the same megabyte a million times.
        store.set_hostcall_fuel(self.config.memory_bytes.saturating_mul(2));
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store
    }
}

/// One call's instance and its permit. The instance is dropped first, or the permit's next holder finds the pool full.
pub(crate) struct Instance {
    store: Store<CallState>,
    _permit: Permit,
}

impl Instance {
    /// The first host-caused error of the call.
    pub(crate) fn take_host_error(&mut self) -> Option<OpError> {
        self.store.data_mut().take_host_error()
    }

    /// The recipe that a description named beside its answer.
    pub(crate) fn take_recipe(&mut self) -> Option<PixelSpec> {
        self.store.data_mut().take_recipe()
    }

    /// Takes the tensor a guest returned and drops the store with everything else.
    pub(crate) fn take_tensor(mut self, tensor: Resource<GuestTensor>) -> Result<Tensor, SandboxError> {
        let tensor = self.store.data_mut().table.delete(tensor);
        let tensor = tensor.map_err(|error| {
            SandboxError::bad_answer(Cause::explained("its tensor handle is invalid", error))
        })?;
        match tensor.pixels {
            Some(pixels) => pixels.apply(&tensor.tensor).map_err(SandboxError::bad_answer),
            None => Ok(tensor.tensor),
        }
    }
}
