//! Tests of whole batches: order, failures, cancellation, and equal values from all loading methods.

use crate::fixture;
use bytes::Bytes;
use frostline_images::{
    BatchLimits, BatchLoader, ByteSource, DecodeLimits, DecodePool, DecodeRoom, Guard, ImageError,
    LoaderOptions, ReservedBytes, Undecoded, load, memory_needed, normalize,
};
use frostline_tensor::{
    BoxFuture, LoadedPixels, OpError, OpErrorCode, PixelFormat, PixelSpec, SampleLoader, SampleRef,
};
use futures::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Provides small images by name. Reads of keys that start with `wait` never complete.
#[derive(Default)]
pub(crate) struct Fixtures {
    reading: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// Counts an active read.
struct Reading(Arc<AtomicUsize>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ByteSource for Fixtures {
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<ReservedBytes, OpError>> {
        let now = self.reading.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let reading = Reading(Arc::clone(&self.reading));
        async move {
            let _reading = reading;
            tokio::task::yield_now().await;
            match sample.key.as_str() {
                key if key.starts_with("wait") => std::future::pending().await,
                "missing.jpg" => Err(OpError::not_found("object 'missing.jpg' not found")),
                "text.jpg" => Ok(Bytes::from_static(b"no image").into()),
                key => Ok(Bytes::from(fixture(key)).into()),
            }
        }
        .boxed()
    }
}

fn samples(keys: &[&str]) -> Vec<SampleRef> {
    keys.iter().map(|key| SampleRef::new(*key)).collect()
}

fn spec() -> PixelSpec {
    PixelSpec {
        resize: 20,
        crop_height: 18,
        crop_width: 16,
        ..PixelSpec::imagenet(1, 1)
    }
}

fn loader(source: Fixtures, options: LoaderOptions) -> BatchLoader<Fixtures> {
    BatchLoader::new(Arc::new(source), DecodePool::start(2).unwrap(), options)
}

async fn loaded(keys: &[&str], format: PixelFormat) -> LoadedPixels {
    loader(Fixtures::default(), LoaderOptions::default())
        .load(samples(keys), spec(), format)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_broken_sample_is_listed_and_the_others_keep_their_order() {
    let keys = ["color.png", "missing.jpg", "gray.jpg", "text.jpg", "palette.png"];
    let batch = loaded(&keys, PixelFormat::U8).await;
    assert_eq!(batch.pixels.shape().dims(), [3, 3, 18, 16]);
    let rows: Vec<Vec<u8>> = ["color.png", "gray.jpg", "palette.png"]
        .iter()
        .map(|name| load(&fixture(name), &spec(), &DecodeLimits::default()).unwrap())
        .collect();
    assert_eq!(batch.pixels.as_u8().unwrap(), rows.concat());
    let failed: Vec<_> = batch
        .failed
        .iter()
        .map(|failure| (failure.index, failure.error.code))
        .collect();
    assert_eq!(
        failed,
        [(1, OpErrorCode::NotFound), (3, OpErrorCode::InvalidEncoding)]
    );
    assert!(
        batch.failed[1]
            .error
            .message
            .starts_with("text.jpg: not a JPEG, PNG, WebP, GIF or BMP")
    );
}

#[tokio::test]
async fn normalizing_bytes_later_gives_the_same_values() {
    let keys = ["color.png", "color-420.jpg", "missing.jpg"];
    let bytes = loaded(&keys, PixelFormat::U8).await;
    let floats = loaded(&keys, PixelFormat::F32).await;
    let later = normalize(&bytes.pixels, &spec()).unwrap();
    assert_eq!(later.as_bytes(), floats.pixels.as_bytes());
    let byte = bytes.pixels.as_u8().unwrap()[0];
    let value = floats.pixels.as_f32().unwrap()[0];
    assert_eq!(value, (f32::from(byte) / 255.0 - 0.485) / 0.229);
    assert!(normalize(&floats.pixels, &spec()).is_err(), "already normalized");
}

#[tokio::test]
async fn no_sample_at_all_is_a_batch_of_no_rows() {
    for keys in [&[][..], &["missing.jpg"]] {
        let batch = loaded(keys, PixelFormat::F32).await;
        assert_eq!(batch.pixels.shape().dims(), [0, 3, 18, 16]);
        assert_eq!(batch.failed.len(), keys.len());
    }
}

#[tokio::test]
async fn an_oversized_batch_or_an_invalid_spec_fails_the_load() {
    let small = LoaderOptions {
        batch: BatchLimits { max_bytes: 1000 },
        ..LoaderOptions::default()
    };
    let result = loader(Fixtures::default(), small)
        .load(samples(&["a", "b"]), spec(), PixelFormat::F32)
        .await;
    assert_eq!(result.unwrap_err().code, OpErrorCode::TooLarge);
    let wrong = PixelSpec {
        crop_width: 21,
        ..spec()
    };
    let result = loader(Fixtures::default(), LoaderOptions::default())
        .load(vec![], wrong, PixelFormat::U8)
        .await;
    assert_eq!(result.unwrap_err().code, OpErrorCode::InvalidArgument);
}

#[tokio::test]
async fn reads_overlap_up_to_the_limit_and_end_with_the_load() {
    let source = Fixtures::default();
    let reading = Arc::clone(&source.reading);
    let most = Arc::clone(&source.most);
    let loader = loader(
        source,
        LoaderOptions {
            reads_in_flight: 3,
            ..LoaderOptions::default()
        },
    );
    let mut load = loader.load(
        samples(&["color.png", "wait1", "wait2", "wait3", "wait4"]),
        spec(),
        PixelFormat::U8,
    );
    while reading.load(Ordering::SeqCst) < 3 || most.load(Ordering::SeqCst) < 3 {
        assert!(futures::poll!(&mut load).is_pending());
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        assert!(futures::poll!(&mut load).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    drop(load);
    assert_eq!(reading.load(Ordering::SeqCst), 0);
}

/// Grants or refuses memory, and counts granted bytes.
struct Lender {
    lends: bool,
    asked: Arc<AtomicU64>,
    out: Arc<AtomicU64>,
}

/// A counted grant.
struct Lent(Arc<AtomicU64>, u64);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

impl DecodeRoom for Lender {
    fn reserve(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        self.asked.fetch_add(bytes, Ordering::SeqCst);
        let lent: Result<Guard, OpError> = if self.lends {
            self.out.fetch_add(bytes, Ordering::SeqCst);
            Ok(Box::new(Lent(Arc::clone(&self.out), bytes)))
        } else {
            Err(OpError::too_large("no memory"))
        };
        std::future::ready(lent).boxed()
    }
}

/// Never grants memory.
struct Never;

impl DecodeRoom for Never {
    fn reserve(&self, _: u64) -> BoxFuture<Result<Guard, OpError>> {
        std::future::pending().boxed()
    }
}

/// Provides a small image, and a large one that requires a reservation.
struct Sizes(Arc<AtomicU64>);

impl ByteSource for Sizes {
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<ReservedBytes, OpError>> {
        let bytes = if sample.key == "large" {
            large()
        } else {
            fixture("color.png")
        };
        self.0.fetch_add(1, Ordering::SeqCst);
        let guard: Guard = Box::new(Lent(Arc::clone(&self.0), 1));
        std::future::ready(Ok(ReservedBytes {
            bytes: bytes.into(),
            guard: Some(guard),
        }))
        .boxed()
    }
}

/// Returns a GIF of 4096 x 2048 pixels with a small frame.
fn large() -> Vec<u8> {
    let mut gif = fixture("color.gif");
    gif[6..10].copy_from_slice(&[0, 16, 0, 8]);
    gif
}

#[tokio::test]
async fn large_images_are_decoded_in_memory_that_is_lent() {
    for lends in [true, false] {
        let counters: [Arc<AtomicU64>; 3] = Default::default();
        let [asked, out, objects] = &counters;
        let room = Lender {
            lends,
            asked: Arc::clone(asked),
            out: Arc::clone(out),
        };
        let options = LoaderOptions {
            room: Some(Arc::new(room)),
            ..LoaderOptions::default()
        };
        let loader = BatchLoader::new(
            Arc::new(Sizes(Arc::clone(objects))),
            DecodePool::start(2).unwrap(),
            options,
        );
        let batch = loader
            .load(samples(&["small", "large"]), spec(), PixelFormat::U8)
            .await
            .unwrap();
        let takes = Undecoded::read(&large(), &DecodeLimits::default())
            .unwrap()
            .memory_needed();
        assert!(
            asked.load(Ordering::SeqCst) >= takes,
            "only the large image reserves memory"
        );
        assert_eq!(out.load(Ordering::SeqCst), 0, "memory is released");
        assert_eq!(objects.load(Ordering::SeqCst), 0, "bytes are dropped");
        let failed: Vec<usize> = batch.failed.iter().map(|failure| failure.index).collect();
        assert_eq!(failed, if lends { vec![] } else { vec![1] });
    }
}

#[tokio::test]
async fn images_that_wait_for_memory_occupy_no_thread() {
    let pool = DecodePool::start(1).unwrap();
    let options = LoaderOptions {
        room: Some(Arc::new(Never)),
        ..LoaderOptions::default()
    };
    let source = Arc::new(Sizes(Arc::default()));
    let loader = BatchLoader::new(source, pool.clone(), options);
    let mut waiting = loader.load(samples(&["large", "large", "large"]), spec(), PixelFormat::U8);
    // The same tenant and thread decode other images. The wait for the headers is over when the second one is decoded.
    for _ in 0..2 {
        assert!(futures::poll!(&mut waiting).is_pending());
        let small = pool.load(fixture("color.png"), spec(), None, String::new());
        small.await.unwrap();
    }
    assert!(futures::poll!(&mut waiting).is_pending());
}

/// A large image that counts how many are decoded in reserved memory. The first access reads the headers.
struct Counted {
    bytes: Vec<u8>,
    accesses: AtomicUsize,
    decoding: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        if self.accesses.fetch_add(1, Ordering::SeqCst) == 1 {
            let now = self.decoding.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
        }
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.accesses.load(Ordering::SeqCst) > 1 {
            self.decoding.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn large_images_of_a_pool_share_the_memory_of_one() {
    let limits = DecodeLimits::default();
    let max_bytes = memory_needed(&large(), &spec(), false, &limits).unwrap();
    assert!(max_bytes >= LoaderOptions::RESERVATION_THRESHOLD);
    let pool = |max_bytes| {
        let pool = DecodePool::start(4).unwrap();
        pool.with_limits(DecodeLimits { max_bytes, ..limits })
    };
    let decoding = Arc::default();
    let most = Arc::default();
    let enough = pool(max_bytes);
    let loads = (0..6).map(|_| {
        let image = Counted {
            bytes: large(),
            accesses: AtomicUsize::default(),
            decoding: Arc::clone(&decoding),
            most: Arc::clone(&most),
        };
        enough.load(image, spec(), None, String::new())
    });
    let expected = load(&large(), &spec(), &limits);
    for loaded in futures::future::join_all(loads).await {
        assert_eq!(loaded, expected);
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    let small = enough.load(fixture("color.png"), spec(), None, String::new());
    assert_eq!(small.await, load(&fixture("color.png"), &spec(), &limits));
    let refused = pool(max_bytes - 1)
        .load(large(), spec(), None, String::new())
        .await;
    assert!(
        matches!(refused, Err(ImageError::TooMuchMemory { .. })),
        "{refused:?}"
    );
    let few = DecodePool::start(1)
        .unwrap()
        .with_limits(DecodeLimits::new(Some(1 << 20)));
    let refused = few.load(large(), spec(), None, String::new()).await;
    assert!(
        matches!(refused, Err(ImageError::TooManyPixels { .. })),
        "{refused:?}"
    );
}

#[test]
fn photos_of_phones_are_within_the_default_limits() {
    // A JPEG with 12,000 x 9,000 pixels, of which only the header is read.
    let mut photo = fixture("color-420.jpg");
    let frame = photo
        .windows(2)
        .position(|marker| marker == [0xff, 0xc0])
        .unwrap();
    photo[frame + 5..frame + 7].copy_from_slice(&9000_u16.to_be_bytes());
    photo[frame + 7..frame + 9].copy_from_slice(&12_000_u16.to_be_bytes());
    let limits = DecodeLimits::default();
    let needed = memory_needed(&photo, &spec(), true, &limits).unwrap();
    assert!(
        needed > 12_000 * 9000 * 3 && needed < limits.max_bytes / 3,
        "{needed}"
    );
    // A quarter turn of 200 megapixels needs the pixels twice.
    assert!(16_320 * 12_240 * 6 < limits.max_bytes && 16_320 * 12_240 < limits.max_pixels);
    let fewer = DecodeLimits::new(Some(64 << 20));
    let refused = memory_needed(&photo, &spec(), true, &fewer);
    assert!(
        matches!(refused, Err(ImageError::TooManyPixels { .. })),
        "{refused:?}"
    );
}
