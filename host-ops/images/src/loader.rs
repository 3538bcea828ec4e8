use crate::batch::Batch;
use crate::resize::{pixels_of, resize_takes};
use crate::{BatchLimits, DecodeLimits, DecodePool, DecodeRoom, Held, ImageError, Undecoded};
use frostline_tensor::{
    BoxFuture, LoadedPixels, OpError, PixelFormat, PixelSpec, SampleLoader, SampleRef, View,
};
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where samples' bytes come from: a store, or memory.
pub trait ByteSource: Send + Sync + 'static {
    /// The sample's bytes; they are let go of when its row is set. An error's message names the object.
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<Held, OpError>>;
}

/// How a [`BatchLoader`] reads and what it refuses.
#[derive(Clone)]
pub struct LoaderOptions {
    /// Samples of one batch being read or waiting to be decoded at any time.
    pub reads_in_flight: usize,
    /// What one image may claim.
    pub decode: DecodeLimits,
    /// What one batch may take.
    pub batch: BatchLimits,
    /// Who is asked before an image is decoded that takes [`LoaderOptions::ASKS_FROM`] or more; nobody without one.
    pub room: Option<Arc<dyn DecodeRoom>>,
    /// How samples are augmented; not at all without one.
    pub view: Option<View>,
    /// Is told how long its thread decoded, resized and augmented an image, well or not; waiting for room is not counted.
    pub on_decoded: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
}

impl LoaderOptions {
    /// 16: an object store answers in some 30 ms and a core decodes a photo in about 2, so this many reads keep a core busy,
    /// and several batches load at once. Fewer starve the decoders; more only hold bytes that wait for them.
    const DEFAULT_READS_IN_FLIGHT: usize = 16;

    /// 16 MiB, a photo of 4 megapixels: what takes less is a host's to have free for each of its decoding threads, so that the
    /// many small images of a data set need not ask one by one.
    pub const ASKS_FROM: u64 = 16 << 20;
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            reads_in_flight: Self::DEFAULT_READS_IN_FLIGHT,
            decode: DecodeLimits::default(),
            batch: BatchLimits::default(),
            room: None,
            view: None,
            on_decoded: None,
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

/// How samples become rows, and where they are put.
#[derive(Clone, Copy)]
struct Row<'a> {
    spec: PixelSpec,
    options: &'a LoaderOptions,
    pool: &'a DecodePool,
    batch: &'a Arc<Mutex<Option<Batch>>>,
}

impl Row<'_> {
    /// Decodes one sample on the pool and writes its row there, so that neither the caller's thread nor a copy is needed.
    async fn decode(self, index: usize, key: String, object: Held) {
        let (spec, options) = (self.spec, self.options.clone());
        let (name, batch) = (key.clone(), Arc::clone(self.batch));
        let work = move || set_row(&batch, index, crop(&name, &object, &spec, &options));
        if let Err(error) = self.pool.run(work).await {
            set_row(self.batch, index, Err(naming(&key, &error)));
        }
    }
}

/// The crop of one object, decoded in reserved memory if that is much.
fn crop(key: &str, object: &Held, spec: &PixelSpec, options: &LoaderOptions) -> Result<Vec<u8>, OpError> {
    let LoaderOptions {
        decode, room, view, ..
    } = options;
    let named = |error: ImageError| naming(key, &error);
    let image = Undecoded::read(&object.bytes, decode).map_err(named)?;
    let takes = image.takes().max(resize_takes(&image, spec, view.is_some()));
    decode.check_bytes(image.format(), takes).map_err(named)?;
    let room = room.as_ref().filter(|_| takes >= LoaderOptions::ASKS_FROM);
    let _reserved = room.map(|room| room.enter(takes)).transpose()?;
    let started = Instant::now();
    let decoded = image.decode();
    let crop = decoded.and_then(|image| pixels_of(&image, spec, view.as_ref(), key));
    if let Some(told) = &options.on_decoded {
        told(started.elapsed());
    }
    crop.map_err(named)
}

fn set_row(batch: &Mutex<Option<Batch>>, index: usize, crop: Result<Vec<u8>, OpError>) {
    if let Some(batch) = batch.lock().as_mut() {
        batch.set(index, crop);
    }
}

fn naming(key: &str, error: &ImageError) -> OpError {
    error.with_message(format!("{key}: {error}"))
}
