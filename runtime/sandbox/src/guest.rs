use crate::allowance::Allowance;
use crate::bindings::FrozenPrefixPre;
use crate::bindings::exports::frostline::pushdown::prefix;
use crate::call::{Call, CallContext, Extracted, ModelView};
use crate::config::Limits;
use crate::description_builder::DescriptionBuilder;
use crate::error::SandboxError;
use crate::runner::Runner;
use crate::state::{CallState, Extraction};
use crate::{answer, arguments, joined, world};
use frostline_tensor::SampleRef;
use frostline_wire::Description;
use std::sync::Arc;
use tokio::runtime::Handle;
use wasmtime::component::Resource;

/// Guest that is ready to run. Every call runs in a new instance and is isolated from concurrent calls.
#[derive(Clone)]
pub struct Guest {
    pub(crate) runner: Arc<Runner>,
    /// Tenant in whose turn the guest is described.
    pub(crate) tenant: Arc<str>,
    pub(crate) sha256: Arc<str>,
    pub(crate) pre: FrozenPrefixPre<CallState>,
}

impl Guest {
    /// SHA-256 of the uploaded bytes in lower-case hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Memory of the loaded guest in bytes: its compiled image, and a third of this for tables and types. Calls need
    /// additional memory.
    pub fn loaded_bytes(&self) -> u64 {
        let image = self.pre.instance_pre().component().image_range();
        let bytes = (image.end.addr() - image.start.addr()) as u64;
        bytes + bytes / 3
    }

    /// Names of the imported interfaces.
    pub fn imports(&self) -> Vec<String> {
        world::imports(self.pre.instance_pre().component())
    }

    /// Warning about an import that the host refuses to execute.
    pub fn refused_import(&self) -> Option<&'static str> {
        world::imports_load(self.pre.instance_pre().component()).then_some(world::LOAD_WARNING)
    }

    /// Calls [`Self::describe_within`] with default [`Limits`].
    ///
    /// # Errors
    /// Returns the errors of [`Self::describe_within`].
    pub async fn describe(
        &self,
        model: &Arc<ModelView>,
        parameters: &str,
    ) -> Result<Description, SandboxError> {
        self.describe_within(model, parameters, &Allowance::new(Limits::default()))
            .await
    }

    /// Returns the description of the guest for `model` and the `parameters` of a job. CPU time is charged to
    /// `allowance`.
    ///
    /// # Errors
    /// Returns [`SandboxError::Failed`] if the guest returns an error, for example because the host refused a
    /// part of the description, [`SandboxError::BadAnswer`] if the description has no name, or the reason why
    /// the call was ended.
    pub async fn describe_within(
        &self,
        model: &Arc<ModelView>,
        parameters: &str,
        allowance: &Arc<Allowance>,
    ) -> Result<Description, SandboxError> {
        let Self { runner, tenant, .. } = self;
        let guest = self.clone();
        let model = Arc::clone(model);
        let parameters = parameters.to_owned();
        let deadline = runner.config.describe_deadline;
        let permit = runner.permit(tenant).await?;
        let state = CallState::new(&runner.config, Arc::clone(allowance), None);
        let described = runner.threads.run(tenant, allowance.account(), async move {
            let view = arguments::model(&model)?;
            let Self { runner, pre, .. } = &guest;
            let called = runner.call(pre, permit, state, deadline, async |guest, store| {
                let builder = DescriptionBuilder::new(Arc::clone(&model));
                let builder = store.data_mut().table.push(builder)?;
                let handle = Resource::new_borrow(builder.rep());
                let prefix = guest.frostline_pushdown_prefix();
                let described = prefix
                    .call_describe(&mut *store, &view, &parameters, handle)
                    .await?;
                let builder = store.data_mut().table.delete(builder)?;
                Ok((described, builder))
            });
            let (_, (described, builder)) = called.await?;
            described.map_err(|error| answer::failure(&error))?;
            builder.finish()
        });
        described.await?
    }

    /// Computes activations of `samples` in a single guest call with a new instance.
    ///
    /// Host operations run on the current Tokio runtime, guest code on the threads of the sandbox. Dropping
    /// the future cancels the call and removes queued work.
    ///
    /// # Errors
    /// Returns [`SandboxError::Failed`] if the guest returns an error. Returns [`SandboxError::Trapped`],
    /// [`SandboxError::Deadline`] or [`SandboxError::Limit`] if the call was ended, and
    /// [`SandboxError::BadAnswer`] if the answer does not contain exactly one activation or failure per
    /// sample. After a host-caused error, [`SandboxError::HostOperation`] replaces all of these errors, and
    /// failed samples in a valid answer count as host-caused.
    pub async fn extract(
        &self,
        samples: &[SampleRef],
        call: &Call,
        context: CallContext,
    ) -> Result<Extracted, SandboxError> {
        let guest = self.clone();
        let call = call.clone();
        let sample_count = samples.len();
        let runner = &self.runner;
        let host = Handle::try_current().unwrap_or_else(|_| runner.threads.handle().clone());
        let versions = arguments::versions(samples);
        let samples = samples.to_vec();
        let deadline = context.allowance.limits().call_deadline;
        let tenant = context.labels.tenant.clone();
        let permit = runner.permit(&tenant).await?;
        let account = context.allowance.account();
        let extracted = runner.threads.run(&tenant, account, async move {
            let allowance = Arc::clone(&context.allowance);
            allowance.count_call();
            let extraction = Extraction {
                context,
                model: Arc::clone(&call.model),
                versions,
                host,
            };
            let Self { runner, pre, .. } = &guest;
            let state = CallState::new(&runner.config, Arc::clone(&allowance), Some(extraction));
            let job = arguments::job(&call, &samples)?;
            let (mut instance, answered) = runner
                .call(pre, permit, state, deadline, async |guest, store| {
                    guest.frostline_pushdown_prefix().call_extract(store, &job).await
                })
                .await?;
            let host_error = instance.store.data_mut().host_error.take();
            let extracted = || -> Result<Extracted, SandboxError> {
                let prefix::Extracted { tensors, failed } =
                    answered.map_err(|error| answer::failure(&error))?;
                let tensors = instance.take_tensors(tensors)?;
                let activations = joined::activations(tensors, &call.tensors, &allowance)?;
                let extracted = answer::extracted(activations, failed, sample_count, &call)?;
                allowance.count_output(extracted.activations.byte_len())?;
                Ok(extracted)
            };
            match extracted() {
                Ok(mut extracted) => {
                    // Only the guest knows which samples the host failed.
                    for failure in &mut extracted.failed {
                        failure.error.host_caused |= host_error.is_some();
                    }
                    Ok(extracted)
                }
                Err(error) => Err(error.or_host_error(host_error)),
            }
        });
        extracted.await?
    }
}
