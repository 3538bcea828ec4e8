use super::walk::{Walk, WalkItem};
use crate::TrainerError;
use crate::compute::blocking;
use frostline_images::{DecodeLimits, DecodePool, load, normalize};
use frostline_tensor::{Data, OpError, PixelSpec, Shape, Tensor};
use futures::{StreamExt, stream};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// The most bytes of a file: what a host takes of an object by default.
const MOST_BYTES: u64 = 256 << 20;

/// Images as network input, a batch at a time, loaded ahead.
pub(super) struct Images {
    batches: mpsc::Receiver<LoadedImages>,
    /// There until it has ended.
    driver: Option<AbortOnDropHandle<Result<(), TrainerError>>>,
}

/// A batch of images.
pub(super) struct LoadedImages {
    /// Every path, and what is wrong with it.
    pub(super) outcomes: Vec<(PathBuf, Result<(), String>)>,
    /// `f32[n, 3, h, w]` of the good ones, in their order; none where there are none.
    pub(super) rows: Option<Tensor>,
}

impl Images {
    /// Begins to load what `paths` lead to with so many threads.
    pub(super) fn start(
        paths: Vec<PathBuf>,
        batch: usize,
        pixels: PixelSpec,
        threads: usize,
    ) -> Result<Self, TrainerError> {
        let decoders = DecodePool::start(threads).map_err(|source| TrainerError::Thread { source })?;
        // One batch waits here, and one to get here.
        let (sender, batches) = mpsc::channel(1);
        let driver = tokio::spawn(run(Walk::new(paths), batch, pixels, decoders, sender));
        Ok(Self {
            batches,
            driver: Some(AbortOnDropHandle::new(driver)),
        })
    }

    /// The next batch; none after the last.
    pub(super) async fn next(&mut self) -> Result<Option<LoadedImages>, TrainerError> {
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
    mut walk: Walk,
    batch: usize,
    pixels: PixelSpec,
    decoders: DecodePool,
    to: mpsc::Sender<LoadedImages>,
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
            // One is read for each that is decoded.
            .buffered(decoders.threads() * 2)
            .collect()
            .await;
        let loaded = blocking(move || together(crops, &pixels)).await?;
        if to.send(loaded).await.is_err() {
            return Ok(());
        }
    }
}

/// An image's pixels, `u8[3, h, w]`.
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
    let decoded = decoders
        .run(move || load(&bytes, &pixels, &DecodeLimits::default()))
        .await;
    let crop = decoded.and_then(|crop| crop).map_err(|error| error.to_string());
    (path, crop)
}

/// A file's bytes, unless they are too many.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(io::Error::other(format!(
            "the file exceeds the limit of {most} MiB; scale the image down"
        )));
    }
    Ok(bytes)
}

fn together(crops: Vec<Cropped>, pixels: &PixelSpec) -> Result<LoadedImages, TrainerError> {
    let (mut outcomes, mut rows, mut count) = (Vec::with_capacity(crops.len()), Vec::new(), 0);
    for (path, crop) in crops {
        let outcome = crop.map(|crop| {
            rows.extend_from_slice(&crop);
            count += 1;
        });
        outcomes.push((path, outcome));
    }
    if count == 0 {
        return Ok(LoadedImages { outcomes, rows: None });
    }
    let shape = Shape::new(pixels.sample_shape()).batched(count);
    let rows = Tensor::new(shape, Data::U8(rows))?;
    let rows = normalize(&rows, pixels).map_err(|error| TrainerError::Preprocess {
        source: OpError::from(error),
    })?;
    Ok(LoadedImages {
        outcomes,
        rows: Some(rows),
    })
}
