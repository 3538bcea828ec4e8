use crate::allowance::{Allowance, Charge};
use crate::breach::{Breach, Resource, Stop};
use crate::config::SandboxConfig;
use crate::job::{CallContext, ModelView};
use crate::meter::Meter;
use frostline_tensor::{BoxFuture, OpError, OpErrorCode, Stage, Tensor};
use futures::FutureExt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tracing::Instrument;
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;

/// A tensor on the host that a guest holds a handle to, and the bytes it is charged for.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct HeldTensor {
    pub(crate) tensor: Tensor,
    pub(crate) charge: Charge,
}

/// A stage of the extraction's model that a guest holds a handle to; as a graph and as an execution context.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
#[derive(Clone)]
pub struct Graph {
    pub(crate) stage: Stage,
}

/// What one call of a guest sees of the host; lent to the bindings.
pub(crate) struct CallState {
    pub(crate) table: ResourceTable,
    pub(crate) extraction: Option<Extraction>,
    /// What its CPU time is taken from.
    pub(crate) allowance: Arc<Allowance>,
    /// The last line logged as an error.
    pub(crate) last_words: Option<String>,
    pub(crate) memory_cap: usize,
    pub(crate) meter: Arc<Meter>,
    table_cap: usize,
}

/// What only `extract` may use.
#[derive(Clone)]
pub(crate) struct Extraction {
    pub(crate) context: CallContext,
    pub(crate) model: Arc<ModelView>,
    /// Where the host's own input and output runs: never on the threads of guests.
    pub(crate) host: Handle,
}

/// The most bytes of a name that is looked up for a guest: object stores take keys of 1,024 bytes.
pub(crate) const NAME: usize = 1024;

impl CallState {
    /// State for one call; without an extraction every operation is refused.
    pub(crate) fn new(
        config: &SandboxConfig,
        allowance: Arc<Allowance>,
        extraction: Option<Extraction>,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(config.handles);
        Self {
            table,
            extraction,
            allowance,
            last_words: None,
            memory_cap: config.memory_bytes,
            meter: Arc::default(),
            table_cap: config.table_elements,
        }
    }

    /// The extraction this call belongs to; whoever asks does something for the guest, so its slice of time ends.
    pub(crate) fn extraction(&self) -> Result<&Extraction, OpError> {
        self.meter.host_call();
        let why = "only `extract` may use the host's operations, `describe` computes nothing";
        self.extraction
            .as_ref()
            .ok_or_else(|| OpError::new(OpErrorCode::UnsupportedOperation, why))
    }

    /// Hands a tensor to the guest.
    pub(crate) fn hold(
        &mut self,
        tensor: Tensor,
        mut charge: Charge,
    ) -> Result<wasmtime::component::Resource<HeldTensor>, Stop> {
        charge.shrink_to(tensor.byte_len());
        Ok(self.table.push(HeldTensor { tensor, charge })?)
    }
}

impl Extraction {
    /// Runs an operation of the host on the host's threads; dropping the future ends it.
    pub(crate) async fn on_host<T: Send + 'static>(
        &self,
        operation: BoxFuture<Result<T, OpError>>,
    ) -> Result<T, OpError> {
        let task = tokio_util::task::AbortOnDropHandle::new(self.host.spawn(operation.in_current_span()));
        task.map(|joined| {
            joined.unwrap_or_else(|lost| Err(OpError::runtime(format!("the host lost an operation: {lost}"))))
        })
        .await
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let grows = within(Resource::Memory, desired, self.memory_cap)?;
        self.allowance.note_memory(desired);
        Ok(grows)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        within(Resource::TableElements, desired, self.table_cap)
    }
}

/// A guest that is refused memory panics with no word of why: ending the call names the limit.
fn within(resource: Resource, desired: usize, allowed: usize) -> wasmtime::Result<bool> {
    if desired <= allowed {
        return Ok(true);
    }
    let (wanted, allowed) = (u64::try_from(desired)?, u64::try_from(allowed)?);
    Err(wasmtime::Error::new(Breach::Limit {
        resource,
        wanted,
        allowed,
    }))
}
