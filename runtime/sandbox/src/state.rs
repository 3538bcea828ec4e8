use crate::allowance::{Allowance, Charge};
use crate::breach::{Breach, ImportError, Resource, check_limit};
use crate::call::{CallContext, ModelView};
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::memory::MemoryReservation;
use crate::meter::Meter;
use frostline_tensor::{BoxFuture, DType, Normalization, OpError, OpErrorCode, SampleRef, Stage, Tensor};
use futures::FutureExt;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Instrument;
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;

/// Host tensor for which a guest holds a handle.
#[allow(unreachable_pub, reason = "re-exported by the generated bindings")]
pub struct GuestTensor {
    pub(crate) tensor: Tensor,
    /// Set if the tensor contains raw pixels. The guest sees normalized `f32`, computed on demand.
    pub(crate) pixels: Option<Normalization>,
    pub(crate) charge: Charge,
}

/// Stage for which a guest holds a handle. Represents both graphs and execution contexts.
#[allow(unreachable_pub, reason = "re-exported by the generated bindings")]
#[derive(Clone)]
pub struct Graph {
    pub(crate) stage: Stage,
}

/// State of a guest call, used by the bindings.
pub(crate) struct CallState {
    pub(crate) table: ResourceTable,
    pub(crate) extraction: Option<Extraction>,
    /// Allowance to which the call is charged.
    pub(crate) allowance: Arc<Allowance>,
    /// The last line logged as an error.
    pub(crate) last_words: Option<String>,
    /// First host-caused error. The call then counts as failed by the host, no matter how the guest handled
    /// the error.
    pub(crate) host_error: Option<OpError>,
    /// Name of the host operation in progress.
    pending_operation: Option<&'static str>,
    pub(crate) memory_cap: usize,
    /// Reservation for linear memory.
    memory: MemoryReservation,
    pub(crate) meter: Arc<Meter>,
    table_cap: usize,
}

/// State of an `extract` call.
#[derive(Clone)]
pub(crate) struct Extraction {
    pub(crate) context: CallContext,
    pub(crate) model: Arc<ModelView>,
    /// Versions of the samples: their etags, with the keys of the objects.
    pub(crate) versions: Arc<HashMap<String, String>>,
    /// Runtime for host operations, which never run on guest threads.
    pub(crate) host: Handle,
}

impl CallState {
    /// Creates the state of a call. Without `extraction`, all host operations are refused.
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
            last_words: None,
            host_error: None,
            pending_operation: None,
            memory_cap: config.memory_bytes,
            meter: Arc::default(),
            table_cap: config.table_elements,
        }
    }

    /// Returns the extraction of this call, or an error in `describe`. Starts a new slice of CPU time, because every
    /// operation on objects, images and stages calls this.
    pub(crate) fn extraction(&self) -> Result<&Extraction, OpError> {
        self.meter.host_call();
        let why = "host operations are only available in `extract`, not in `describe`";
        self.extraction
            .as_ref()
            .ok_or_else(|| OpError::new(OpErrorCode::UnsupportedOperation, why))
    }

    /// Records an error returned to the guest if it was caused by the host.
    pub(crate) fn record_host_error(&mut self, error: &OpError) {
        if error.host_caused && self.host_error.is_none() {
            self.host_error = Some(error.clone());
        }
    }

    /// Waits for a host operation. `what` is the name used in messages.
    pub(crate) async fn wait_for<T>(&mut self, what: &'static str, operation: impl Future<Output = T>) -> T {
        self.pending_operation = Some(what);
        let done = operation.await;
        self.pending_operation = None;
        done
    }

    /// Returns the error for an exceeded deadline. Blames the host if a host operation was pending.
    pub(crate) fn deadline_error(&self, after: Duration) -> SandboxError {
        match self.pending_operation {
            Some(what) => SandboxError::HostOperation {
                error: OpError::from_host(
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
    /// Returns the tensor in the form visible to the guest, with pixels as normalized floats.
    pub(crate) fn normalized(&self) -> Result<Cow<'_, Tensor>, OpError> {
        match self.pixels {
            Some(pixels) => Ok(Cow::Owned(pixels.apply(&self.tensor)?)),
            None => Ok(Cow::Borrowed(&self.tensor)),
        }
    }

    /// Returns the type visible to the guest.
    pub(crate) fn dtype(&self) -> DType {
        self.pixels.map_or(self.tensor.dtype(), |_| DType::F32)
    }
}

impl Extraction {
    /// Returns a reference to the object `key` for a read by the guest. Without `etag`, this is the version of the
    /// call's sample, so a guest never reads a replaced object for it. Objects that are not samples have any version.
    pub(crate) fn pinned(&self, key: String, etag: Option<String>) -> SampleRef {
        let etag = etag.or_else(|| self.versions.get(&key).cloned());
        SampleRef { key, etag }
    }

    /// Runs a host operation on the runtime of the host. Dropping the future cancels the operation.
    pub(crate) async fn on_host<T: Send + 'static>(
        &self,
        operation: BoxFuture<Result<T, OpError>>,
    ) -> Result<T, OpError> {
        let operation = frostline_batching::Charge::current().pay_for(operation.in_current_span());
        let task = tokio_util::task::AbortOnDropHandle::new(self.host.spawn(operation));
        task.map(|joined| {
            joined.unwrap_or_else(|error| {
                let message = format!("a host operation failed: {error}");
                Err(OpError::from_host(OpErrorCode::RuntimeError, message))
            })
        })
        .await
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // Trap instead of refusing memory. A guest without memory would panic without a reason, but the trap
        // names the limit.
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
        let raw = held(None);
        let normalized = held(Some(normalization));
        assert_eq!((raw.dtype(), normalized.dtype()), (DType::U8, DType::F32));
        assert_eq!(*raw.normalized().unwrap(), raw.tensor);
        let floats = normalized.normalized().unwrap();
        assert_eq!(*floats, normalization.apply(&raw.tensor).unwrap());
        assert_eq!(floats.dtype(), normalized.dtype());
    }
}
