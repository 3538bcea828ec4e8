//! Conversion of a grant's samples to objects, pixels or activations.

use crate::caller::Caller;
use crate::jobs::StageClock;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use bytes::Bytes;
use frostline_batching::Reserved;
use frostline_images::{ByteSource, ReservedBytes};
use frostline_objects::{ObjectError, Store};
use frostline_sandbox::{Allowance, Call, CallContext, Guest};
use frostline_tensor::{
    BoxFuture, ObjectReader, OpError, OpErrorCode, PixelFormat, PixelSpec, SampleFailure, SampleLoader,
    SampleRef, Tensor,
};
use frostline_wire::{ActivationWriter, FrameError, JobStage, RequestedSample, RowFailure, object_digest};
use futures::{FutureExt, StreamExt, stream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Objects that an extraction reads concurrently for the split `none`. A store answers within about 30 ms,
/// and more reads would only use memory.
pub(crate) const READS_AT_ONCE: usize = 8;

/// Conversion of samples to rows, shared by all calls of an extraction.
#[derive(Clone)]
pub(super) enum RowWork {
    /// Split `none`. `digests` is set if hashes are sent instead of objects.
    Objects { source: LoaderSource, digests: bool },
    /// Split `input`.
    Pixels {
        loader: Arc<dyn SampleLoader>,
        spec: PixelSpec,
        format: PixelFormat,
    },
    /// A cut.
    Activations {
        guest: Guest,
        call: Call,
        context: Box<CallContext>,
    },
}

/// Failure of a call.
pub(super) struct CallError {
    pub(super) refusal: Refusal,
    /// True if a call with fewer samples can succeed.
    pub(super) needs_fewer_samples: bool,
}

impl<E: Into<Refusal>> From<E> for CallError {
    fn from(error: E) -> Self {
        Self {
            refusal: error.into(),
            needs_fewer_samples: false,
        }
    }
}

/// Result of a call.
pub(super) struct CallRows {
    values: RowValues,
    failed: Vec<RowFailure>,
    /// Reservation for the rows. Not set for objects, since the reservation is attached to the bytes.
    pub(super) memory: Option<Reserved>,
}

enum RowValues {
    Objects(Vec<(u32, Bytes)>),
    Tensor(Vec<u32>, Tensor),
}

impl RowWork {
    /// The guest whose code runs, if any.
    pub(super) fn guest(&self) -> Option<&str> {
        match self {
            Self::Activations { context, .. } => Some(&context.labels.guest),
            Self::Objects { .. } | Self::Pixels { .. } => None,
        }
    }

    /// Converts samples to rows. A sample that fails becomes a row with an error. Returns an error only if
    /// the whole call fails.
    pub(super) async fn call(self, samples: Vec<RequestedSample>) -> Result<CallRows, CallError> {
        let (positions, samples): (Vec<u32>, Vec<SampleRef>) = samples
            .into_iter()
            .map(|requested| (requested.position, requested.sample))
            .unzip();
        match self {
            Self::Objects { source, digests } => {
                Ok(read_objects(&source, digests, &positions, samples).await)
            }
            Self::Pixels { loader, spec, format } => {
                let loaded = loader.load(samples, spec, format).await?;
                Ok(CallRows::from_tensor(&positions, loaded.pixels, loaded.failed))
            }
            Self::Activations { guest, call, context } => {
                let tenant = context.labels.tenant.clone();
                let extracted = guest.extract(&samples, &call, *context).await;
                let extracted = extracted.map_err(|error| CallError {
                    needs_fewer_samples: error.needs_fewer_samples(),
                    refusal: Refusal::extraction(error, &tenant),
                })?;
                Ok(CallRows::from_tensor(
                    &positions,
                    extracted.activations,
                    extracted.failed,
                ))
            }
        }
    }
}

impl CallRows {
    /// Creates rows from a tensor that contains a row for each sample without a failure.
    fn from_tensor(positions: &[u32], tensor: Tensor, failed: Vec<SampleFailure>) -> Self {
        let bad: std::collections::HashSet<usize> = failed.iter().map(|failure| failure.index).collect();
        let good = positions
            .iter()
            .enumerate()
            .filter(|(index, _)| !bad.contains(index));
        let good = good.map(|(_, position)| *position).collect();
        let failed = failed.into_iter().filter_map(|failure| {
            positions.get(failure.index).map(|&position| RowFailure {
                position,
                error: failure.error,
            })
        });
        Self {
            values: RowValues::Tensor(good, tensor),
            failed: failed.collect(),
            memory: None,
        }
    }

    /// Numbers of successful and failed rows.
    pub(super) fn counts(&self) -> (u64, u64) {
        let good = match &self.values {
            RowValues::Objects(rows) => rows.len(),
            RowValues::Tensor(positions, _) => positions.len(),
        };
        (good as u64, self.failed.len() as u64)
    }

    /// Size in bytes of the rows before encoding.
    pub(super) fn bytes(&self) -> usize {
        match &self.values {
            RowValues::Objects(rows) => rows.iter().map(|(_, bytes)| bytes.len()).sum(),
            RowValues::Tensor(_, tensor) => tensor.byte_len(),
        }
    }

    /// Returns the bytes of these rows in an answer.
    pub(super) fn encode(self, writer: &mut ActivationWriter) -> Result<Vec<Bytes>, FrameError> {
        let mut pieces = match self.values {
            RowValues::Objects(rows) => writer.objects(&rows)?,
            RowValues::Tensor(positions, _) if positions.is_empty() => Vec::new(),
            RowValues::Tensor(positions, tensor) => writer.tensor(&positions, tensor)?,
        };
        pieces.extend(writer.failures(&self.failed)?);
        Ok(pieces)
    }
}

async fn read_objects(
    source: &LoaderSource,
    digests: bool,
    positions: &[u32],
    samples: Vec<SampleRef>,
) -> CallRows {
    let reads = samples
        .into_iter()
        .zip(positions.to_vec())
        .map(|(sample, position)| {
            let source = source.clone();
            async move { (position, source.sample(&sample).await) }
        });
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    let mut reads = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
    while let Some((position, outcome)) = reads.next().await {
        match outcome {
            Ok(bytes) if digests => {
                let digest = object_digest(&bytes).to_le_bytes();
                rows.push((position, Bytes::copy_from_slice(&digest)));
            }
            Ok(bytes) => rows.push((position, bytes)),
            Err(error) => failed.push(RowFailure { position, error }),
        }
    }
    CallRows {
        values: RowValues::Objects(rows),
        failed,
        memory: None,
    }
}

/// A data root for image loading and guests. Records the duration of all reads. The sizes of samples count toward
/// the allowance here, those of the ranges that guests read in the sandbox.
#[derive(Clone)]
pub(super) struct LoaderSource {
    store: Arc<Store>,
    /// Maximum size of an object in bytes.
    max_object_bytes: u64,
    metrics: Arc<Metrics>,
    meters: Meters,
}

/// Counters of an extraction.
#[derive(Clone)]
pub(super) struct Meters {
    pub(super) allowance: Arc<Allowance>,
    pub(super) clock: Arc<StageClock>,
}

impl LoaderSource {
    pub(super) fn new(caller: &Caller, store: Arc<Store>, meters: &Meters) -> Self {
        Self {
            store,
            max_object_bytes: caller.config().limits.object_bytes,
            metrics: Arc::clone(caller.metrics()),
            meters: meters.clone(),
        }
    }

    async fn sample(&self, sample: &SampleRef) -> Result<Bytes, OpError> {
        // The quota error is also reported for the whole call. Failing early here saves further reads.
        let within_quota = self.meters.allowance.check_object_bytes();
        within_quota.map_err(|error| OpError::new(OpErrorCode::TooLarge, error.to_string()))?;
        let read = self.store.read_sample(sample, self.max_object_bytes);
        let bytes = self.timed(read).await?;
        self.meters.allowance.record_object_bytes(bytes.len() as u64);
        Ok(bytes)
    }

    /// Records the duration of a successful read.
    async fn timed(
        &self,
        read: impl Future<Output = Result<Bytes, ObjectError>>,
    ) -> Result<Bytes, ObjectError> {
        let started = Instant::now();
        let bytes = read.await?;
        let took = started.elapsed();
        self.metrics.read_seconds.observe(took);
        self.meters.clock.add(JobStage::Read, took, 1);
        Ok(bytes)
    }
}

impl ByteSource for LoaderSource {
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<ReservedBytes, OpError>> {
        let source = self.clone();
        async move { Ok(source.sample(&sample).await?.into()) }.boxed()
    }
}

impl ObjectReader for LoaderSource {
    fn size(&self, sample: SampleRef) -> BoxFuture<Result<u64, OpError>> {
        let store = Arc::clone(&self.store);
        async move { Ok(store.size(&sample).await?) }.boxed()
    }

    fn read(&self, sample: SampleRef, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>> {
        let source = self.clone();
        async move {
            let read = source.store.read_range(&sample, range);
            Ok(source.timed(read).await?.to_vec())
        }
        .boxed()
    }
}
