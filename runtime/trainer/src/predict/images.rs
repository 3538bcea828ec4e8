use super::walk::{WalkItem, images_at};
use crate::{TrainerError, blocking};
use frostline_compute::ComputeError;
use frostline_images::{DecodeLimits, DecodePool, normalize};
use frostline_tensor::{Data, PixelSpec, Shape, Tensor};
use futures::{StreamExt, stream};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Maximum size of a file in bytes, the same as a host's default limit for objects.
const MOST_BYTES: u64 = 256 << 20;

/// Loads batches of images in advance, as network input.
pub(super) struct Images {
    batches: mpsc::Receiver<LoadedBatch>,
    /// The loading task, while it is running.
    driver: Option<AbortOnDropHandle<Result<(), TrainerError>>>,
}

/// Loaded batch of images or other files.
pub(super) struct LoadedBatch {
    /// Every path of the batch with the outcome of loading.
    pub(super) outcomes: Vec<(PathBuf, Result<(), String>)>,
    /// Rows of the loaded files, `f32[n, ..]`, in order; `None` if all failed. Rows of images are `[3, h, w]`.
    pub(super) rows: Option<Tensor>,
}

impl Images {
    /// Starts loading the images in `paths` with `threads` decoder threads.
    pub(super) fn start(
        paths: Vec<PathBuf>,
        batch: usize,
        pixels: PixelSpec,
        threads: usize,
        limits: DecodeLimits,
    ) -> Result<Self, TrainerError> {
        let decoders = DecodePool::start(threads).map_err(|source| ComputeError::Thread { source })?;
        let decoders = decoders.with_limits(limits);
        // The channel holds a batch while the next is being loaded.
        let (sender, batches) = mpsc::channel(1);
        let walk = paths.into_iter().flat_map(images_at);
        let driver = tokio::spawn(run(walk, batch, pixels, decoders, sender));
        Ok(Self {
            batches,
            driver: Some(AbortOnDropHandle::new(driver)),
        })
    }

    /// Returns the next batch, or `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<LoadedBatch>, TrainerError> {
        if let Some(batch) = self.batches.recv().await {
            return Ok(Some(batch));
        }
        if let Some(driver) = self.driver.take() {
            driver
                .await
                .map_err(|_| TrainerError::Ended { part: "loader" })??;
        }
        Ok(None)
    }
}

async fn run(
    mut walk: impl Iterator<Item = WalkItem> + Send + 'static,
    batch: usize,
    pixels: PixelSpec,
    decoders: DecodePool,
    to: mpsc::Sender<LoadedBatch>,
) -> Result<(), TrainerError> {
    loop {
        let found: Vec<WalkItem>;
        (walk, found) = blocking(move || {
            let found = walk.by_ref().take(batch).collect();
            Ok((walk, found))
        })
        .await?;
        if found.is_empty() {
            return Ok(());
        }
        let crops: Vec<_> = stream::iter(found)
            .map(|found| crop(found, pixels, &decoders))
            // Read one image for each image being decoded.
            .buffered(decoders.threads() * 2)
            .collect()
            .await;
        let loaded = blocking(move || together(crops, &pixels)).await?;
        if to.send(loaded).await.is_err() {
            return Ok(());
        }
    }
}

/// Path of an image and pixels `u8[3, h, w]`.
type Cropped = (PathBuf, Result<Vec<u8>, String>);

async fn crop(found: WalkItem, pixels: PixelSpec, decoders: &DecodePool) -> Cropped {
    let path = match found {
        Ok(path) => path,
        Err((path, why)) => return (path, Err(why)),
    };
    let file = path.clone();
    let bytes = match blocking(move || Ok(read(&file))).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return (path, Err(format!("cannot read the file: {error}"))),
        Err(error) => return (path, Err(error.to_string())),
    };
    let crop = decoders.load(bytes, pixels, None, String::new()).await;
    (path, crop.map_err(|error| error.to_string()))
}

/// Reads a file up to the size limit.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(io::Error::other(format!(
            "the file exceeds the limit of {most} MiB; reduce the size of the image"
        )));
    }
    Ok(bytes)
}

fn together(crops: Vec<Cropped>, pixels: &PixelSpec) -> Result<LoadedBatch, TrainerError> {
    let mut outcomes = Vec::with_capacity(crops.len());
    let mut rows = Vec::new();
    let mut count = 0;
    for (path, crop) in crops {
        let outcome = crop.map(|crop| {
            rows.extend_from_slice(&crop);
            count += 1;
        });
        outcomes.push((path, outcome));
    }
    if count == 0 {
        return Ok(LoadedBatch { outcomes, rows: None });
    }
    let shape = Shape::new(pixels.sample_shape()).batched(count);
    let rows = Tensor::new(shape, Data::U8(rows))?;
    Ok(LoadedBatch {
        outcomes,
        rows: Some(normalize(&rows, pixels)?),
    })
}
