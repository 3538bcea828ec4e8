use frostline_sandbox::{Allowance, CallContext, CutView, Labels, Limits, ModelView, Sandbox, SandboxConfig};
use frostline_tensor::{
    BoxFuture, Data, GraphExecutor, LoadedPixels, ObjectReader, OpError, OpErrorCode, PixelFormat, PixelSpec,
    SampleFailure, SampleLoader, SampleRef, Stage, Tensor,
};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Returns a model with an input of 3 x 2 x 2 and the cuts `/first/Relu` of shape `[2]` and `last` of shape
/// `[4]`.
pub(crate) fn model() -> Arc<ModelView> {
    let cut = |name: &str, shape: &[usize]| CutView {
        name: name.to_owned(),
        shape: shape.to_vec(),
    };
    Arc::new(ModelView {
        sha256: "5e".repeat(32),
        input: "data".to_owned(),
        input_shape: vec![3, 2, 2],
        joined_inputs: Vec::new(),
        cuts: vec![cut("/first/Relu", &[2]), cut("last", &[4])],
    })
}

pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(small()).unwrap()
}

/// Configuration with a single guest thread and eight permits. Tenants can hold up to four permits.
pub(crate) fn small() -> SandboxConfig {
    SandboxConfig {
        guest_threads: 1,
        instances: 8,
        ..SandboxConfig::default()
    }
}

pub(crate) fn samples(keys: &[&str]) -> Vec<SampleRef> {
    keys.iter()
        .map(|key| SampleRef {
            key: (*key).to_owned(),
            etag: Some("e1".to_owned()),
        })
        .collect()
}

/// Returns a context with fake operations and `limits`.
pub(crate) fn context(executor: Arc<dyn GraphExecutor>, limits: Limits) -> CallContext {
    CallContext {
        executor,
        loader: Arc::new(Loader),
        augmented: None,
        objects: Arc::new(Objects),
        allowance: Allowance::new(limits),
        labels: Labels {
            tenant: "t".to_owned(),
            guest: "g".to_owned(),
            extraction: "e".to_owned(),
        },
        on_log_line: None,
    }
}

/// Computes the sum of each input row (of the bytes, if the input is pixels) and repeats it `width` times.
/// Records the executed stages.
#[derive(Default)]
pub(crate) struct Summing {
    pub(crate) stages: Mutex<Vec<(String, String)>>,
}

impl GraphExecutor for Summing {
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        self.stages
            .lock()
            .unwrap()
            .push((stage.from.clone(), stage.to.clone()));
        let width = if stage.to == "last" { 4 } else { 2 };
        let rows = batch.rows().unwrap();
        let elements = match (stage.pixels, batch.as_f32(), batch.as_u8()) {
            (None, Some(floats), _) => floats.to_vec(),
            (Some(_), _, Some(pixels)) => pixels.iter().copied().map(f32::from).collect(),
            _ => return Box::pin(async { Err(OpError::runtime("the network takes f32")) }),
        };
        let per_row = elements.len() / rows;
        let sums = elements.chunks(per_row).map(|row| row.iter().sum::<f32>());
        let values: Vec<f32> = sums.flat_map(|sum| std::iter::repeat_n(sum, width)).collect();
        Box::pin(async move { Ok(Tensor::f32([rows, width], values)?) })
    }
}

/// Returns zeros and keeps the input of the last execution.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) input: Mutex<Vec<f32>>,
}

impl GraphExecutor for Recording {
    fn submit(&self, _: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        *self.input.lock().unwrap() = batch.as_f32().unwrap().to_vec();
        let rows = batch.rows().unwrap();
        Box::pin(async move { Ok(Tensor::f32([rows, 4], vec![0.0; rows * 4])?) })
    }
}

/// Store in which every object has these bytes.
pub(crate) struct Text(pub(crate) Vec<u8>);

impl ObjectReader for Text {
    fn size(&self, _: SampleRef) -> BoxFuture<Result<u64, OpError>> {
        let size = self.0.len() as u64;
        Box::pin(async move { Ok(size) })
    }

    fn read(&self, _: SampleRef, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>> {
        let end = range.end.min(self.0.len() as u64) as usize;
        let bytes = self.0[range.start as usize..end].to_vec();
        Box::pin(async move { Ok(bytes) })
    }
}

/// Never finishes. Counts started and dropped executions.
#[derive(Default)]
pub(crate) struct Stuck {
    pub(crate) started: Arc<AtomicUsize>,
    pub(crate) dropped: Arc<AtomicUsize>,
}

struct CountsDrop(Arc<AtomicUsize>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl GraphExecutor for Stuck {
    fn submit(&self, _: &Stage, _: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        self.started.fetch_add(1, Ordering::SeqCst);
        let counts = CountsDrop(Arc::clone(&self.dropped));
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(counts);
            Err(OpError::runtime("pending forever came to an end"))
        })
    }
}

/// Delays executions until all of those expected by the barrier are running.
pub(crate) struct BarrierExecutor {
    pub(crate) barrier: Arc<tokio::sync::Barrier>,
}

impl GraphExecutor for BarrierExecutor {
    fn submit(&self, _: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        let barrier = Arc::clone(&self.barrier);
        let rows = batch.rows().unwrap();
        Box::pin(async move {
            barrier.wait().await;
            Ok(Tensor::f32([rows, 4], vec![0.0; rows * 4])?)
        })
    }
}

/// Fails like an engine.
pub(crate) struct Failing;

impl GraphExecutor for Failing {
    fn submit(&self, _: &Stage, _: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        Box::pin(async { Err(OpError::runtime("kernel Conv failed: out of cheese")) })
    }
}

/// Fails like a host without a free lane.
pub(crate) struct Full;

impl GraphExecutor for Full {
    fn submit(&self, _: &Stage, _: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        Box::pin(async {
            Err(OpError::from_host(
                OpErrorCode::TooLarge,
                "the lanes' queue is full",
            ))
        })
    }
}

/// Fills the pixels of a sample with the number in the key. A sample without a number in the key fails to
/// load.
#[derive(Default)]
pub(crate) struct Loader;

impl SampleLoader for Loader {
    fn load(
        &self,
        samples: Vec<SampleRef>,
        spec: PixelSpec,
        format: PixelFormat,
    ) -> BoxFuture<Result<LoadedPixels, OpError>> {
        Box::pin(async move {
            // Loading must use the caller's runtime instead of the guest threads.
            assert_ne!(std::thread::current().name(), Some("guest"));
            assert_eq!(format, PixelFormat::U8);
            let width: usize = spec.sample_shape().iter().product();
            let mut values = Vec::new();
            let mut failed = Vec::new();
            for (index, sample) in samples.iter().enumerate() {
                match sample.key.parse::<u8>() {
                    Ok(value) => values.extend(std::iter::repeat_n(value, width)),
                    Err(_) => failed.push(SampleFailure {
                        index,
                        error: OpError::not_found("no photo"),
                    }),
                }
            }
            let [channels, height, columns] = spec.sample_shape();
            let rows = samples.len() - failed.len();
            Ok(LoadedPixels {
                pixels: Tensor::new([rows, channels, height, columns], Data::U8(values))?,
                failed,
            })
        })
    }
}

/// Store with numbers as keys and a million bytes per object. Samples have the etag `e1`, except for those that were
/// replaced, whose key is 404.
pub(crate) struct Objects;

fn check_version(sample: &SampleRef) -> Result<(), OpError> {
    match (sample.key.as_str(), sample.etag.as_deref()) {
        ("404", Some("e1")) => Err(OpError::invalid("the object was replaced")),
        _ => Ok(()),
    }
}

impl ObjectReader for Objects {
    fn size(&self, sample: SampleRef) -> BoxFuture<Result<u64, OpError>> {
        Box::pin(async move { check_version(&sample).map(|()| 1_000_000) })
    }

    fn read(&self, sample: SampleRef, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>> {
        if sample.key.parse::<u32>().is_err() {
            return Box::pin(async { Err(OpError::not_found("no such object")) });
        }
        let length = range.end.min(1_000_000).saturating_sub(range.start);
        Box::pin(async move { check_version(&sample).map(|()| vec![7; usize::try_from(length).unwrap()]) })
    }
}
