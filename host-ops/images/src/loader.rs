use crate::batch::Batch;
use crate::{BatchLimits, DecodeLimits, DecodePool, ImageError, load};
use bytes::Bytes;
use frostline_tensor::{BoxFuture, LoadedPixels, OpError, PixelFormat, PixelSpec, SampleLoader, SampleRef};
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where samples' bytes come from: a store, or memory.
pub trait ByteSource: Send + Sync + 'static {
    /// The sample's bytes. An error's message names the object.
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<Bytes, OpError>>;
}

/// How a [`BatchLoader`] reads and what it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples of one batch being read or waiting to be decoded at any time.
    pub reads_in_flight: usize,
    /// What one image may claim.
    pub decode: DecodeLimits,
    /// What one batch may take.
    pub batch: BatchLimits,
}

impl LoaderOptions {
    /// 16: an object store answers in some 30 ms and a core decodes a photo in about 2, so this many reads keep a core busy,
    /// and several batches load at once. Fewer starve the decoders; more only hold bytes that wait for them.
    const DEFAULT_READS_IN_FLIGHT: usize = 16;
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            reads_in_flight: Self::DEFAULT_READS_IN_FLIGHT,
            decode: DecodeLimits::default(),
            batch: BatchLimits::default(),
        }
    }
}

/// Reads samples and decodes them into one batch tensor; reading overlaps decoding, and dropping the load ends both.
pub struct BatchLoader<S> {
    source: Arc<S>,
    pool: DecodePool,
    options: LoaderOptions,
}

impl<S: ByteSource> BatchLoader<S> {
    /// A loader that reads from `source` and decodes on `pool`.
    pub fn new(source: Arc<S>, pool: DecodePool, options: LoaderOptions) -> Self {
        Self {
            source,
            pool,
            options,
        }
    }
}

impl<S: ByteSource> SampleLoader for BatchLoader<S> {
    fn load(
        &self,
        samples: Vec<SampleRef>,
        spec: PixelSpec,
        format: PixelFormat,
    ) -> BoxFuture<Result<LoadedPixels, OpError>> {
        let source = Arc::clone(&self.source);
        load_batch(source, self.pool.clone(), self.options, samples, spec, format).boxed()
    }
}

async fn load_batch<S: ByteSource>(
    source: Arc<S>,
    pool: DecodePool,
    options: LoaderOptions,
    samples: Vec<SampleRef>,
    spec: PixelSpec,
    format: PixelFormat,
) -> Result<LoadedPixels, OpError> {
    let batch = Arc::new(Mutex::new(Some(Batch::new(
        samples.len(),
        &spec,
        format,
        &options.batch,
    )?)));
    let (batch_of, pool_of) = (&batch, &pool);
    stream::iter(samples.into_iter().enumerate())
        .map(|(index, sample)| {
            let key = sample.key.clone();
            let (bytes, batch) = (source.read(sample), Arc::clone(batch_of));
            async move {
                match bytes.await {
                    Ok(bytes) => decode_into(batch, index, key, bytes, pool_of, spec, options.decode).await,
                    Err(error) => set_row(&batch, index, Err(error)),
                }
            }
        })
        .buffer_unordered(options.reads_in_flight.max(1))
        .collect::<()>()
        .await;
    let finished = batch.lock().take();
    finished.ok_or(ImageError::PoolClosed)?.finish()
}

/// Decodes one sample on the pool and writes its row there, so that neither the caller's thread nor a copy is needed.
async fn decode_into(
    batch: Arc<Mutex<Option<Batch>>>,
    index: usize,
    key: String,
    bytes: Bytes,
    pool: &DecodePool,
    spec: PixelSpec,
    limits: DecodeLimits,
) {
    let name = key.clone();
    let shared = Arc::clone(&batch);
    let work = move || {
        set_row(
            &shared,
            index,
            load(&bytes, &spec, &limits).map_err(|e| naming(&name, &e)),
        )
    };
    if let Err(error) = pool.run(work).await {
        set_row(&batch, index, Err(naming(&key, &error)));
    }
}

fn set_row(batch: &Mutex<Option<Batch>>, index: usize, crop: Result<Vec<u8>, OpError>) {
    if let Some(batch) = batch.lock().as_mut() {
        batch.set(index, crop);
    }
}

fn naming(key: &str, error: &ImageError) -> OpError {
    error.told(format!("{key}: {error}"))
}
