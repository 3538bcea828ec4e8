use crate::allowance::{Allowance, Charge};
use crate::breach::{Breach, ImportError, Resource, check_limit};
use crate::call::{CallContext, ModelView};
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::memory::MemoryReservation;
use crate::meter::Meter;
use frostline_tensor::{BoxFuture, DType, Normalization, OpError, OpErrorCode, PixelSpec, Stage, Tensor};
use futures::FutureExt;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Instrument;
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;

/// A host tensor that a guest holds a handle to, with its charge.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct GuestTensor {
    pub(crate) tensor: Tensor,
    /// Set where the tensor holds raw pixels: the guest sees normalized `f32`, which are computed where they are needed.
    pub(crate) pixels: Option<Normalization>,
    pub(crate) charge: Charge,
}

/// A stage of the extraction's model that a guest holds a handle to; as a graph and as an execution context.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
#[derive(Clone)]
pub struct Graph {
    pub(crate) stage: Stage,
}

/// The state of one guest call, which the bindings work on.
pub(crate) struct CallState {
    pub(crate) table: ResourceTable,
    pub(crate) extraction: Option<Extraction>,
    /// Its CPU time is charged here.
    pub(crate) allowance: Arc<Allowance>,
    /// What its pixels are made by, as a description says.
    recipe: Option<PixelSpec>,
    /// The last line logged as an error.
    pub(crate) last_words: Option<String>,
    /// The first host-caused error: the call then fails by the host, however the guest handled it.
    host_error: Option<OpError>,
    /// The host operation that the call waits for.
    pending_operation: Option<&'static str>,
    pub(crate) memory_cap: usize,
    /// Reserved for its linear memory.
    memory: MemoryReservation,
    pub(crate) meter: Arc<Meter>,
    table_cap: usize,
}

/// What only calls of `extract` have.
#[derive(Clone)]
pub(crate) struct Extraction {
    pub(crate) context: CallContext,
    pub(crate) model: Arc<ModelView>,
    /// Runs the host's own input and output, never on guest threads.
    pub(crate) host: Handle,
}

impl CallState {
    /// State for one call. Without an extraction every host operation is refused.
    pub(crate) fn new(
        config: &SandboxConfig,
        allowance: Arc<Allowance>,
        extraction: Option<Extraction>,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(config.handles);
        Self {
            table,
            memory: allowance.reservation(),
            extraction,
            allowance,
            recipe: None,
            last_words: None,
            host_error: None,
            pending_operation: None,
            memory_cap: config.memory_bytes,
            meter: Arc::default(),
            table_cap: config.table_elements,
        }
    }

    /// The extraction this call belongs to. Every host operation asks for it, so this also starts a new slice of CPU time.
    pub(crate) fn extraction(&self) -> Result<&Extraction, OpError> {
        self.meter.host_call();
        let why = "host operations are only available in `extract`, not in `describe`";
        self.extraction
            .as_ref()
            .ok_or_else(|| OpError::new(OpErrorCode::UnsupportedOperation, why))
    }

    /// Notes what the guest says in `describe` that its pixels are made by.
    pub(crate) fn describe_recipe(&mut self, recipe: PixelSpec) -> Result<(), OpError> {
        self.meter.host_call();
        if self.extraction.is_some() {
            let why = "describe-recipe is only available in `describe`, not in `extract`";
            return Err(OpError::new(OpErrorCode::UnsupportedOperation, why));
        }
        self.recipe = Some(recipe);
        Ok(())
    }

    /// The last recipe that it named.
    pub(crate) fn take_recipe(&mut self) -> Option<PixelSpec> {
        self.recipe.take()
    }

    /// Records an error returned to the guest, if the host caused it.
    pub(crate) fn record_host_error(&mut self, error: &OpError) {
        if error.host_caused && self.host_error.is_none() {
            self.host_error = Some(error.clone());
        }
    }

    /// The first host-caused error of this call.
    pub(crate) fn take_host_error(&mut self) -> Option<OpError> {
        self.host_error.take()
    }

    /// Waits for a host operation; `what` names it in messages.
    pub(crate) async fn wait_for<T>(&mut self, what: &'static str, operation: impl Future<Output = T>) -> T {
        self.pending_operation = Some(what);
        let done = operation.await;
        self.pending_operation = None;
        done
    }

    /// The error of a call that exceeded its deadline: the host's fault if a host operation was pending.
    pub(crate) fn deadline_error(&self, after: Duration) -> SandboxError {
        match self.pending_operation {
            Some(what) => SandboxError::HostOperation {
                error: OpError::of_host(
                    OpErrorCode::Timeout,
                    format!("{what} did not finish within the guest's {after:?}"),
                ),
            },
            None => SandboxError::Deadline { after },
        }
    }

    /// Adds a tensor to the guest's handles.
    pub(crate) fn push_tensor(
        &mut self,
        tensor: Tensor,
        pixels: Option<Normalization>,
        mut charge: Charge,
    ) -> Result<wasmtime::component::Resource<GuestTensor>, ImportError> {
        charge.shrink_to(tensor.byte_len());
        let held = GuestTensor {
            tensor,
            pixels,
            charge,
        };
        Ok(self.table.push(held)?)
    }
}

impl GuestTensor {
    /// The tensor as the guest sees it: pixels as normalized floats.
    pub(crate) fn normalized(&self) -> Result<Cow<'_, Tensor>, OpError> {
        match self.pixels {
            Some(pixels) => Ok(Cow::Owned(pixels.apply(&self.tensor)?)),
            None => Ok(Cow::Borrowed(&self.tensor)),
        }
    }

    /// Its type as the guest sees it.
    pub(crate) fn dtype(&self) -> DType {
        self.pixels.map_or(self.tensor.dtype(), |_| DType::F32)
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
            let message = |error| format!("a host operation failed: {error}");
            joined.unwrap_or_else(|error| Err(OpError::of_host(OpErrorCode::RuntimeError, message(error))))
        })
        .await
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // A guest that is refused memory panics without a reason: a trap names the limit.
        check_limit(Resource::Memory, desired as u64, self.memory_cap as u64)?;
        if let Err(error) = self.memory.grow(desired.saturating_sub(current) as u64) {
            self.record_host_error(&error);
            return Err(Breach::NoMemory(error).into());
        }
        self.allowance.record_memory(desired);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        check_limit(Resource::TableElements, desired as u64, self.table_cap as u64)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Allowance, Limits};
    use frostline_tensor::{Data, PixelSpec};

    #[test]
    fn a_guest_sees_floats_where_pixels_are_held() {
        let allowance = Allowance::new(Limits::default());
        let normalization = Normalization::from_spec(&PixelSpec::imagenet(1, 2));
        let held = |pixels| GuestTensor {
            tensor: Tensor::new([1, 3, 1, 2], Data::U8(vec![0, 50, 100, 150, 200, 255])).unwrap(),
            pixels,
            charge: allowance.charge_tensor(6).unwrap(),
        };
        let (raw, normalized) = (held(None), held(Some(normalization)));
        assert_eq!((raw.dtype(), normalized.dtype()), (DType::U8, DType::F32));
        assert_eq!(*raw.normalized().unwrap(), raw.tensor);
        let floats = normalized.normalized().unwrap();
        assert_eq!(*floats, normalization.apply(&raw.tensor).unwrap());
        assert_eq!(floats.dtype(), normalized.dtype());
    }
}
