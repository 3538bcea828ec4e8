use crate::allowance::{Allowance, Charge};
use crate::breach::{Breach, ImportError, Resource, within};
use crate::call::{CallContext, ModelView};
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::lender::Loan;
use crate::meter::Meter;
use frostline_tensor::{BoxFuture, DType, Normalisation, OpError, OpErrorCode, Stage, Tensor};
use futures::FutureExt;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Instrument;
use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;

/// A tensor on the host that a guest holds a handle to, and the bytes it is charged for.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct HeldTensor {
    pub(crate) tensor: Tensor,
    /// The tensor is pixels, and this what they stand for: the guest sees `f32`, and whoever needs them makes them.
    pub(crate) pixels: Option<Normalisation>,
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
    /// The first error of an operation that the host caused: whatever the guest makes of it, it is not the guest's.
    lacked: Option<OpError>,
    /// What of the host's the call waits for at the moment.
    awaited: Option<&'static str>,
    pub(crate) memory_cap: usize,
    /// For its linear memory.
    memory: Loan,
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
            memory: allowance.loan(),
            extraction,
            allowance,
            last_words: None,
            lacked: None,
            awaited: None,
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

    /// Remembers an error that the guest is told, if the host caused it.
    pub(crate) fn note(&mut self, error: &OpError) {
        if error.host_caused && self.lacked.is_none() {
            self.lacked = Some(error.clone());
        }
    }

    /// What the host failed this call by, if it did.
    pub(crate) fn take_lacked(&mut self) -> Option<OpError> {
        self.lacked.take()
    }

    /// Waits for something of the host's, `what` in words.
    pub(crate) async fn awaiting<T>(&mut self, what: &'static str, operation: impl Future<Output = T>) -> T {
        self.awaited = Some(what);
        let done = operation.await;
        self.awaited = None;
        done
    }

    /// What a call ends with that took longer than `after`: the host's fault while the guest waits for it.
    pub(crate) fn overdue(&self, after: Duration) -> SandboxError {
        match self.awaited {
            Some(what) => SandboxError::HostLacked {
                error: OpError::of_host(
                    OpErrorCode::Timeout,
                    format!("{what} had not ended when the guest's {after:?} were over"),
                ),
            },
            None => SandboxError::Deadline { after },
        }
    }

    /// Hands a tensor to the guest.
    pub(crate) fn hold(
        &mut self,
        tensor: Tensor,
        pixels: Option<Normalisation>,
        mut charge: Charge,
    ) -> Result<wasmtime::component::Resource<HeldTensor>, ImportError> {
        charge.shrink_to(tensor.byte_len());
        let held = HeldTensor {
            tensor,
            pixels,
            charge,
        };
        Ok(self.table.push(held)?)
    }
}

impl HeldTensor {
    /// The tensor as the guest sees it.
    pub(crate) fn seen(&self) -> Result<Cow<'_, Tensor>, OpError> {
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
            let lost = |lost| format!("the host lost an operation: {lost}");
            joined.unwrap_or_else(|error| Err(OpError::of_host(OpErrorCode::RuntimeError, lost(error))))
        })
        .await
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // A guest that is refused memory panics with no word of why: ending the call names the limit.
        within(Resource::Memory, desired as u64, self.memory_cap as u64)?;
        if let Err(error) = self.memory.grow(desired.saturating_sub(current) as u64) {
            self.note(&error);
            return Err(Breach::Lacked(error).into());
        }
        self.allowance.note_memory(desired);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        within(Resource::TableElements, desired as u64, self.table_cap as u64)?;
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
        let normalisation = Normalisation::from_spec(&PixelSpec::imagenet(1, 2));
        let held = |pixels| HeldTensor {
            tensor: Tensor::new([1, 3, 1, 2], Data::U8(vec![0, 50, 100, 150, 200, 255])).unwrap(),
            pixels,
            charge: allowance.charge_tensor(6).unwrap(),
        };
        let (raw, normalised) = (held(None), held(Some(normalisation)));
        assert_eq!((raw.dtype(), normalised.dtype()), (DType::U8, DType::F32));
        assert_eq!(*raw.seen().unwrap(), raw.tensor);
        let floats = normalised.seen().unwrap();
        assert_eq!(*floats, normalisation.apply(&raw.tensor).unwrap());
        assert_eq!(floats.dtype(), normalised.dtype());
    }
}
