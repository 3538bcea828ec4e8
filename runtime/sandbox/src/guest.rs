use crate::allowance::Allowance;
use crate::bindings::{self, FrozenPrefix, FrozenPrefixPre};
use crate::config::Limits;
use crate::error::SandboxError;
use crate::job::{CallContext, Extracted, Job, ModelView, guest_samples};
use crate::meter::metered;
use crate::sandbox::Sandbox;
use crate::state::{CallState, Extraction, HeldTensor};
use crate::{answer, stage_name, world};
use frostline_batching::{Permit, Share};
use frostline_tensor::{SampleRef, Tensor};
use frostline_wire::Description;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use wasmtime::Store;
use wasmtime::component::Resource;

/// A guest that is ready to run. Every call gets an instance of its own, so calls share nothing and run at once.
#[derive(Clone)]
pub struct Guest {
    shared: Arc<Shared>,
}

struct Shared {
    sandbox: Sandbox,
    sha256: String,
    pre: FrozenPrefixPre<CallState>,
}

impl Guest {
    pub(crate) fn new(sandbox: Sandbox, sha256: String, pre: FrozenPrefixPre<CallState>) -> Self {
        Self {
            shared: Arc::new(Shared { sandbox, sha256, pre }),
        }
    }

    /// SHA-256 of the bytes it was made from, lower-case hex.
    pub fn sha256(&self) -> &str {
        &self.shared.sha256
    }

    /// The interfaces it imports; all of them are such as guests get.
    pub fn imports(&self) -> Vec<String> {
        world::imports(self.shared.pre.instance_pre().component())
    }

    /// What it imports that is refused whenever it is called, in a sentence.
    pub fn refused_import(&self) -> Option<&'static str> {
        world::loads(self.shared.pre.instance_pre().component()).then_some(world::NO_LOAD)
    }

    /// What a guest of one's own does for `model`, as [`Self::describe_within`] an allowance of the usual [`Limits`].
    ///
    /// # Errors
    /// As [`Self::describe_within`].
    pub async fn describe(
        &self,
        model: &Arc<ModelView>,
        parameters: &str,
    ) -> Result<Description, SandboxError> {
        self.describe_within(model, parameters, &Allowance::new(Limits::default()))
            .await
    }

    /// What the guest does for `model`, given a job's `parameters`; its CPU time is taken from `allowance`.
    ///
    /// # Errors
    /// [`SandboxError::Failed`] when the guest says it cannot serve them, [`SandboxError::BadAnswer`] when it names what
    /// the model does not have, and whatever else ends a call.
    pub async fn describe_within(
        &self,
        model: &Arc<ModelView>,
        parameters: &str,
        allowance: &Arc<Allowance>,
    ) -> Result<Description, SandboxError> {
        let (shared, model, parameters) =
            (Arc::clone(&self.shared), Arc::clone(model), parameters.to_owned());
        let deadline = shared.sandbox.inner.config.describe_deadline;
        let tenant = Arc::clone(&shared.sandbox.tenant);
        let permit = shared.permit(&tenant).await?;
        let state = CallState::new(&shared.sandbox.inner.config, Arc::clone(allowance), None);
        self.on_guest_threads(&tenant, async move {
            let view = model_view(&model)?;
            let call = async |guest: &FrozenPrefix, store: &mut Store<CallState>| {
                guest.call_describe(store, &view, &parameters).await
            };
            let (_, answered) = shared.call(permit, state, deadline, call).await?;
            answer::description(answered.map_err(answer::failure)?, &model)
        })
        .await
    }

    /// Turns `samples` into activations: one call of the guest, on an instance of its own.
    ///
    /// Operations of the host run on the runtime this is polled on, guest code on the sandbox's threads. Dropping the
    /// future ends the call: its instance goes, its queued work is removed.
    ///
    /// # Errors
    /// [`SandboxError::Failed`] with the guest's own reason; [`SandboxError::Trapped`], [`SandboxError::Deadline`] and
    /// [`SandboxError::Limit`] when its call was ended; [`SandboxError::BadAnswer`] when what it returned is not one row or
    /// failure for every sample.
    pub async fn extract(
        &self,
        samples: &[SampleRef],
        job: &Job,
        context: CallContext,
    ) -> Result<Extracted, SandboxError> {
        let (shared, job, asked) = (Arc::clone(&self.shared), job.clone(), samples.len());
        let host = Handle::try_current().unwrap_or_else(|_| shared.sandbox.inner.threads.handle().clone());
        let samples = guest_samples(samples);
        let deadline = context.allowance.limits().call_deadline;
        let tenant = context.labels.tenant.clone();
        let permit = shared.permit(&tenant).await?;
        self.on_guest_threads(&tenant, async move {
            let allowance = Arc::clone(&context.allowance);
            allowance.count_call();
            let extraction = Extraction {
                context,
                model: Arc::clone(&job.model),
                host,
            };
            let config = &shared.sandbox.inner.config;
            let state = CallState::new(config, Arc::clone(&allowance), Some(extraction));
            let asked_job = guest_job(&job)?;
            let call = async |guest: &FrozenPrefix, store: &mut Store<CallState>| {
                guest.call_extract(store, &samples, &asked_job).await
            };
            let (instance, answered) = shared.call(permit, state, deadline, call).await?;
            let bindings::Activations { tensor, failed } = answered.map_err(answer::failure)?;
            let extracted = answer::extracted(instance.take_tensor(tensor)?, failed, asked, &job)?;
            allowance.count_output(extracted.activations.byte_len())?;
            Ok(extracted)
        })
        .await
    }

    async fn on_guest_threads<T: Send + 'static>(
        &self,
        tenant: &str,
        call: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        self.shared.sandbox.inner.threads.run(tenant, call).await?
    }
}

impl Shared {
    /// Waits for the tenant's turn.
    async fn permit(&self, tenant: &str) -> Result<Permit, SandboxError> {
        let inner = &self.sandbox.inner;
        let after = inner.config.permit_deadline;
        let permit = {
            // Also for who calls from outside of a runtime.
            let _timers = inner.threads.handle().enter();
            tokio::time::timeout(after, inner.instances.enter(tenant, Share::AsManyAsItLeaves))
        };
        let in_time = permit.await.map_err(|_| SandboxError::Busy { after })?;
        Ok(in_time?)
    }

    /// Makes an instance by right of `permit` and calls it; after a trap nothing of the instance is used again.
    async fn call<T>(
        &self,
        permit: Permit,
        state: CallState,
        deadline: Duration,
        call: impl AsyncFnOnce(&FrozenPrefix, &mut Store<CallState>) -> wasmtime::Result<T>,
    ) -> Result<(Instance, T), SandboxError> {
        let inner = &self.sandbox.inner;
        let mut instance = Instance {
            store: inner.store(state),
            _permit: permit,
        };
        let store = &mut instance.store;
        let state = store.data();
        let (meter, allowance) = (Arc::clone(&state.meter), Arc::clone(&state.allowance));
        let run = metered(&meter, allowance, async {
            let guest = self.pre.instantiate_async(&mut *store).await?;
            call(&guest, store).await
        });
        let outcome = tokio::time::timeout(deadline, run).await;
        match outcome {
            Ok(Ok(answered)) => Ok((instance, answered)),
            Ok(Err(error)) => {
                let last_words = instance.store.data_mut().last_words.take();
                Err(SandboxError::from_trap(&error, inner.config.handles, last_words))
            }
            Err(_) => Err(SandboxError::Deadline { after: deadline }),
        }
    }
}

/// One call's instance and the permit for it; the instance goes first, or the permit's next user finds the pool full.
struct Instance {
    store: Store<CallState>,
    _permit: Permit,
}

impl Instance {
    /// Takes the tensor a guest returned, and with the store gives up everything else it held.
    fn take_tensor(mut self, tensor: Resource<HeldTensor>) -> Result<Tensor, SandboxError> {
        let held = self.store.data_mut().table.delete(tensor);
        held.map(|held| held.tensor)
            .map_err(|error| SandboxError::bad_answer(format!("its tensor is gone: {error}")))
    }
}

fn model_view(model: &ModelView) -> Result<bindings::ModelView, SandboxError> {
    let cuts = model.cuts.iter().map(|cut| {
        Ok(bindings::Cut {
            name: cut.name.clone(),
            shape: dims(&cut.shape)?,
        })
    });
    Ok(bindings::ModelView {
        input: model.input.clone(),
        input_shape: dims(&model.input_shape)?,
        cuts: cuts.collect::<Result<_, SandboxError>>()?,
    })
}

fn guest_job(job: &Job) -> Result<bindings::Job, SandboxError> {
    Ok(bindings::Job {
        split: job.split.clone(),
        stage: stage_name::up_to(&job.split),
        input: job.model.input.clone(),
        input_shape: dims(&job.model.input_shape)?,
        parameters: job.parameters.clone(),
    })
}

fn dims(shape: &[usize]) -> Result<Vec<u32>, SandboxError> {
    let dims: Result<_, _> = shape.iter().map(|&dim| u32::try_from(dim)).collect();
    dims.map_err(|_| SandboxError::host(format!("the model's shape {shape:?} is too large for guests")))
}
