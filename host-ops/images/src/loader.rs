use crate::batch::Batch;
use crate::encoded::EncodedImage;
use crate::pool::{LoadError, reserve_in};
use crate::{DecodePool, ImageError, LoaderOptions, ReservedBytes};
use frostline_tensor::{BoxFuture, LoadedPixels, OpError, PixelFormat, PixelSpec, SampleLoader, SampleRef};
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use std::sync::Arc;

/// Provides the bytes of samples from a store.
pub trait ByteSource: Send + Sync + 'static {
    /// Reads a sample. The bytes are dropped after writing the sample's row. Error messages must name the
    /// object.
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<ReservedBytes, OpError>>;
}

/// Reads samples and decodes them into a batch tensor. Reading overlaps decoding, and dropping the load
/// cancels both.
pub struct BatchLoader<S> {
    source: Arc<S>,
    pool: DecodePool,
    options: LoaderOptions,
}

impl<S: ByteSource> BatchLoader<S> {
    /// Returns a loader that reads from `source` and decodes on `pool`.
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
        let loader = Self {
            source: Arc::clone(&self.source),
            pool: self.pool.clone(),
            options: self.options.clone(),
        };
        async move { loader.load_batch(samples, spec, format).await }.boxed()
    }
}

impl<S: ByteSource> BatchLoader<S> {
    async fn load_batch(
        &self,
        samples: Vec<SampleRef>,
        spec: PixelSpec,
        format: PixelFormat,
    ) -> Result<LoadedPixels, OpError> {
        let Self {
            source,
            pool,
            options,
        } = self;
        let batch = Arc::new(Mutex::new(Some(Batch::new(
            samples.len(),
            &spec,
            format,
            &options.batch,
        )?)));
        let row = Row {
            spec,
            options,
            pool,
            batch: &batch,
        };
        stream::iter(samples.into_iter().enumerate())
            .map(|(index, sample)| {
                let key = sample.key.clone();
                let read = source.read(sample);
                async move {
                    match read.await {
                        Ok(object) => row.decode(index, key, object).await,
                        Err(error) => set_row(row.batch, index, Err(error)),
                    }
                }
            })
            .buffer_unordered(options.reads_in_flight.max(1))
            .collect::<()>()
            .await;
        let finished = batch.lock().take();
        finished.ok_or(ImageError::PoolClosed)?.finish()
    }
}

/// Parameters for converting samples to rows, and the target batch.
#[derive(Clone, Copy)]
struct Row<'a> {
    spec: PixelSpec,
    options: &'a LoaderOptions,
    pool: &'a DecodePool,
    batch: &'a Arc<Mutex<Option<Batch>>>,
}

impl Row<'_> {
    /// Decodes a sample and writes its row on a pool thread, which avoids a copy and does not block the
    /// caller's thread.
    async fn decode(self, index: usize, key: String, object: ReservedBytes) {
        let name = key.clone();
        let batch = Arc::clone(self.batch);
        let image = EncodedImage::new(object, key, self.spec, self.options);
        let write = move |image: &EncodedImage<ReservedBytes>, crop: Result<Vec<u8>, ImageError>| {
            set_row(&batch, index, crop.map_err(|error| naming(&image.key, &error)));
        };
        match self
            .pool
            .load_with(
                image,
                |bytes| reserve_in(self.options.room.as_deref(), bytes),
                write,
            )
            .await
        {
            Ok(()) => {}
            Err(LoadError::Image(error)) => set_row(self.batch, index, Err(naming(&name, &error))),
            Err(LoadError::Memory(error)) => set_row(self.batch, index, Err(error)),
        }
    }
}

fn set_row(batch: &Mutex<Option<Batch>>, index: usize, crop: Result<Vec<u8>, OpError>) {
    if let Some(batch) = batch.lock().as_mut() {
        batch.set(index, crop);
    }
}

fn naming(key: &str, error: &ImageError) -> OpError {
    error.with_message(format!("{key}: {error}"))
}
