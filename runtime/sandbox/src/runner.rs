//! What calls of guests run on: threads of their own, and an instance each, by permit.

use crate::bindings::{FrozenPrefix, FrozenPrefixPre};
use crate::config::SandboxConfig;
use crate::engine;
use crate::error::SandboxError;
use crate::meter::metered;
use crate::state::{CallState, HeldTensor};
use crate::threads::GuestThreads;
use frostline_batching::{Permit, Share, TurnGate};
use frostline_tensor::{Cause, OpError, Tensor};
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

    /// Waits for the tenant's turn.
    pub(crate) async fn permit(&self, tenant: &str) -> Result<Permit, SandboxError> {
        let after = self.config.permit_deadline;
        let permit = {
            // Also for who calls from outside of a runtime.
            let _timers = self.threads.handle().enter();
            tokio::time::timeout(after, self.instances.enter(tenant, Share::AsManyAsItLeaves))
        };
        let in_time = permit.await.map_err(|_| SandboxError::Busy { after })?;
        Ok(in_time?)
    }

    /// Makes an instance of `guest` by right of `permit` and calls it; after a trap nothing of the instance is used again.
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
            Err(_) => instance.store.data().overdue(deadline),
        };
        Err(error.unless(instance.take_lacked()))
    }

    /// A store for one call: limited, and interrupted at every tick.
    fn store(&self, state: CallState) -> Store<CallState> {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| state);
        // What one call may pass to the host: a list may name the same megabyte a million times.
        store.set_hostcall_fuel(self.config.memory_bytes.saturating_mul(2));
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store
    }
}

/// One call's instance and the permit for it; the instance goes first, or the permit's next user finds the pool full.
pub(crate) struct Instance {
    store: Store<CallState>,
    _permit: Permit,
}

impl Instance {
    /// What the host failed the call by, if it did.
    pub(crate) fn take_lacked(&mut self) -> Option<OpError> {
        self.store.data_mut().take_lacked()
    }

    /// Takes the tensor a guest returned, and with the store gives up everything else it held.
    pub(crate) fn take_tensor(mut self, tensor: Resource<HeldTensor>) -> Result<Tensor, SandboxError> {
        let held = self.store.data_mut().table.delete(tensor);
        let held =
            held.map_err(|error| SandboxError::bad_answer(Cause::explained("its tensor is gone", error)))?;
        match held.pixels {
            Some(pixels) => pixels.apply(&held.tensor).map_err(SandboxError::bad_answer),
            None => Ok(held.tensor),
        }
    }
}
