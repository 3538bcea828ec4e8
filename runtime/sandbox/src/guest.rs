use crate::allowance::Allowance;
use crate::bindings::{self, FrozenPrefix, FrozenPrefixPre};
use crate::call::{Call, CallContext, Extracted, ModelView};
use crate::config::Limits;
use crate::error::SandboxError;
use crate::runner::Runner;
use crate::state::{CallState, Extraction};
use crate::{answer, question, world};
use frostline_tensor::SampleRef;
use frostline_wire::{Description, Pixels};
use std::sync::Arc;
use tokio::runtime::Handle;
use wasmtime::Store;

/// A guest that is ready to run. Every call gets an instance of its own, so calls share nothing and run at once.
#[derive(Clone)]
pub struct Guest {
    shared: Arc<Shared>,
}

struct Shared {
    runner: Arc<Runner>,
    /// On whose behalf it describes itself.
    tenant: Arc<str>,
    sha256: String,
    pre: FrozenPrefixPre<CallState>,
}

impl Guest {
    pub(crate) fn new(
        runner: Arc<Runner>,
        tenant: Arc<str>,
        sha256: String,
        pre: FrozenPrefixPre<CallState>,
    ) -> Self {
        let shared = Shared {
            runner,
            tenant,
            sha256,
            pre,
        };
        Self {
            shared: Arc::new(shared),
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
        let Shared { runner, tenant, .. } = &*self.shared;
        let deadline = runner.config.describe_deadline;
        let permit = runner.permit(tenant).await?;
        let state = CallState::new(&runner.config, Arc::clone(allowance), None);
        let described = runner.threads.run(tenant, async move {
            let view = question::model_view(&model)?;
            let call = async |guest: &FrozenPrefix, store: &mut Store<CallState>| {
                guest.call_describe(store, &view, &parameters).await
            };
            let Shared { runner, pre, .. } = &*shared;
            let (_, answered) = runner.call(pre, permit, state, deadline, call).await?;
            answer::description(answered.map_err(answer::failure)?, &model)
        });
        let mut description = described.await??;
        let component = self.shared.pre.instance_pre().component();
        description.augments = world::augments(component) && matches!(description.pixels, Pixels::Spec(_));
        Ok(description)
    }

    /// Turns `samples` into activations: one call of the guest, on an instance of its own.
    ///
    /// Operations of the host run on the runtime this is polled on, guest code on the sandbox's threads. Dropping the
    /// future ends the call: its instance goes, its queued work is removed.
    ///
    /// # Errors
    /// [`SandboxError::Failed`] with the guest's own reason; [`SandboxError::Trapped`], [`SandboxError::Deadline`] and
    /// [`SandboxError::Limit`] when its call was ended; [`SandboxError::BadAnswer`] when what it returned is not one row or
    /// failure for every sample; and instead of any of these [`SandboxError::HostLacked`], where an operation of the host's had failed by
    /// the host's own cause before. In an answer after such an operation every failed sample counts as failed by the host.
    pub async fn extract(
        &self,
        samples: &[SampleRef],
        call: &Call,
        context: CallContext,
    ) -> Result<Extracted, SandboxError> {
        let (shared, call, asked) = (Arc::clone(&self.shared), call.clone(), samples.len());
        let runner = &self.shared.runner;
        let host = Handle::try_current().unwrap_or_else(|_| runner.threads.handle().clone());
        let samples = question::samples(samples);
        let deadline = context.allowance.limits().call_deadline;
        let tenant = context.labels.tenant.clone();
        let permit = runner.permit(&tenant).await?;
        let extracted = runner.threads.run(&tenant, async move {
            let allowance = Arc::clone(&context.allowance);
            allowance.count_call();
            let extraction = Extraction {
                context,
                model: Arc::clone(&call.model),
                host,
            };
            let Shared { runner, pre, .. } = &*shared;
            let state = CallState::new(&runner.config, Arc::clone(&allowance), Some(extraction));
            let job = question::job(&call)?;
            let extract = async |guest: &FrozenPrefix, store: &mut Store<CallState>| {
                guest.call_extract(store, &samples, &job).await
            };
            let (mut instance, answered) = runner.call(pre, permit, state, deadline, extract).await?;
            let lacked = instance.take_lacked();
            let extracted = || -> Result<Extracted, SandboxError> {
                let bindings::Activations { tensor, failed } = answered.map_err(answer::failure)?;
                let extracted = answer::extracted(instance.take_tensor(tensor)?, failed, asked, &call)?;
                allowance.count_output(extracted.activations.byte_len())?;
                Ok(extracted)
            };
            match extracted() {
                Ok(extracted) => Ok(extracted.of_host(lacked.is_some())),
                Err(error) => Err(error.unless(lacked)),
            }
        });
        extracted.await?
    }
}
