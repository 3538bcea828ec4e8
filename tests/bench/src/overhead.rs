//! What the sandbox and the network path cost: the same decode and prefix driven straight at the engine, through the stock guest,
//! and through a host with HTTP and Arrow on loopback; equally parallel, on the same threads, in turns.

use crate::report::{Report, median};
use crate::run::{shared, text};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use frostline_engine::{Device, Lanes, LanesConfig, StageSource, TenantLanes};
use frostline_graph::Model;
use frostline_images::{BatchLoader, ByteSource, DecodePool, LoaderOptions};
use frostline_objects::Store;
use frostline_sandbox::{
    Allowance, CallContext, CutView, Guest, Job, Labels, Limits, ModelView, Sandbox, SandboxConfig,
};
use frostline_server::{Host, HostSettings, RunningHost};
use frostline_tensor::{
    BoxFuture, GraphExecutor, OpError, PixelFormat, PixelSpec, SampleLoader, SampleRef, Stage,
};
use frostline_trainer::{Guest as GuestFile, HostClient, Token};
use frostline_wire::{Encoding, ExtractionRequest, Layout, Pin, RequestedSample, RowFormat, Split};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Instant;

const CUT: &str = "features";
/// Samples of one call, and calls at once: one decodes while another computes, a third hides the hand-over.
const GRANT: usize = 32;
const CALLS: usize = 3;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(report))
}

async fn measure(report: &mut Report) -> Result<()> {
    let rounds = if report.quick() { 5 } else { 15 };
    let rig = Rig::start().await?;
    println!(
        "SqueezeNet 1.1 up to {CUT}, {} photos a round, {rounds} rounds, calls of {GRANT}, {CALLS} at once, {} lanes",
        rig.samples.len(),
        rig.lanes.config().lanes
    );
    rig.round().await?;
    let (mut direct, mut sandbox, mut path) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let [a, b, c] = rig.round().await?;
        direct.push(a);
        sandbox.push(b);
        path.push(c);
    }
    let ratio = |rates: &[f64]| {
        median(
            &rates
                .iter()
                .zip(&direct)
                .map(|(rate, direct)| rate / direct)
                .collect::<Vec<_>>(),
        )
    };
    let (sandbox_ratio, path_ratio) = (ratio(&sandbox), ratio(&path));
    println!("{:<28} {:>10} {:>8}", "", "images/s", "ratio");
    println!(
        "{:<28} {:>10.1} {:>8.3}",
        "straight at the engine",
        median(&direct),
        1.0
    );
    println!(
        "{:<28} {:>10.1} {sandbox_ratio:>8.3}",
        "stock guest in the sandbox",
        median(&sandbox)
    );
    println!(
        "{:<28} {:>10.1} {path_ratio:>8.3}",
        "host, HTTP and Arrow",
        median(&path)
    );
    report.set("direct_images_per_second", median(&direct));
    report.set("sandbox_images_per_second", median(&sandbox));
    report.set("path_images_per_second", median(&path));
    report.set("sandbox_ratio", sandbox_ratio);
    report.set("path_ratio", path_ratio);
    rig.host.shutdown(std::time::Duration::from_secs(5)).await;
    Ok(())
}

/// All three ways, ready to run.
struct Rig {
    samples: Vec<SampleRef>,
    spec: PixelSpec,
    stage: Stage,
    lanes: Lanes,
    executor: Arc<TenantLanes>,
    loader: Arc<dyn SampleLoader>,
    store: Arc<Store>,
    guest: Guest,
    job: Job,
    host: RunningHost,
    client: HostClient,
    request: ExtractionRequest,
    format: RowFormat,
    _state: tempfile::TempDir,
}

/// The prefix, whatever stage of it is asked for.
struct OneModel(Model);

impl StageSource for OneModel {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let part = self
            .0
            .slice(Some(&stage.from), Some(&stage.to))
            .map_err(|error| OpError::invalid(error.to_string()))?;
        Ok(part
            .to_bytes()
            .map_err(|error| OpError::invalid(error.to_string()))?
            .into())
    }
}

struct Photos(Arc<Store>);

impl ByteSource for Photos {
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<Bytes, OpError>> {
        let store = Arc::clone(&self.0);
        async move { Ok(store.read(&sample.key, sample.etag.as_deref()).await?) }.boxed()
    }
}

impl Rig {
    async fn start() -> Result<Self> {
        let data = shared("data/clothing/train")?;
        let model = Model::read(shared("data/squeezenet1_1_pooled.onnx")?)?;
        let network = model.network()?;
        let prefix = model.slice(None, Some(CUT))?;
        let bytes = Bytes::from(prefix.to_bytes()?);
        let dims = network.input.shape.dims();
        let &[_, height, width] = dims else {
            bail!("the network's input is no image: {dims:?}")
        };
        let spec = PixelSpec::imagenet(u32::try_from(height)?, u32::try_from(width)?);

        let state = tempfile::tempdir()?;
        let settings = HostSettings {
            listen: "127.0.0.1:0".to_owned(),
            state: text(state.path())?.to_owned(),
            data: vec![text(&data)?.to_owned()],
            ..HostSettings::default()
        };
        let host = Host::start(settings.check()?).await?;
        let client = HostClient::new(
            &format!("http://{}", host.address()),
            Some(Token::read(&state.path().join("token"))?),
        )?;
        let stock = GuestFile::stock();
        let guest_pin = Pin {
            name: "prefix".to_owned(),
            sha256: client.push_guest("prefix", stock.bytes.clone()).await?.sha256,
        };
        let model_pin = Pin {
            name: "squeezenet".to_owned(),
            sha256: client.push_model("squeezenet", bytes).await?.sha256,
        };
        let listed = client.objects(text(&data)?, Layout::Auto).await?;
        let samples: Vec<SampleRef> = listed
            .into_iter()
            .map(|object| SampleRef {
                key: object.key,
                etag: object.etag,
            })
            .collect();

        let lanes = Lanes::start(LanesConfig::for_device(Device::Cpu), Arc::new(OneModel(prefix)))?;
        let executor = Arc::new(lanes.for_tenant("bench"));
        let store = Arc::new(Store::open(text(&data)?)?);
        let pool = DecodePool::start(std::thread::available_parallelism()?.get())?;
        let loader = Arc::new(BatchLoader::new(
            Arc::new(Photos(Arc::clone(&store))),
            pool,
            LoaderOptions::default(),
        ));

        let sandbox = Sandbox::new(SandboxConfig::default())?;
        let guest = sandbox.prepare(stock.bytes).await?;
        let cut = network.cut(CUT)?;
        let view = Arc::new(ModelView {
            sha256: model_pin.sha256.clone(),
            input: network.input.name.clone(),
            input_shape: dims.to_vec(),
            cuts: vec![CutView {
                name: CUT.to_owned(),
                shape: cut.shape.dims().to_vec(),
            }],
        });
        let description = guest.describe(&view, "").await?;
        let job = Job::new(Arc::clone(&view), &description, CUT, "")?;
        let request = ExtractionRequest {
            root: text(&data)?.to_owned(),
            split: Split::Cut(CUT.to_owned()),
            guest: Some(guest_pin),
            model: Some(model_pin),
            parameters: String::new(),
            encoding: Encoding::F32,
            samples: (0..)
                .zip(&samples)
                .map(|(position, sample)| requested(position, sample))
                .collect(),
        };
        Ok(Self {
            stage: Stage {
                model: view.sha256.clone(),
                from: network.input.name.clone(),
                to: CUT.to_owned(),
            },
            format: RowFormat::F32(cut.shape.dims().to_vec()),
            samples,
            spec,
            lanes,
            executor,
            loader,
            store,
            guest,
            job,
            host,
            client,
            request,
            _state: state,
        })
    }

    /// Images a second each way, one after the other.
    async fn round(&self) -> Result<[f64; 3]> {
        let direct = self.rate(self.direct()).await?;
        let sandbox = self.rate(self.sandbox()).await?;
        let path = self.rate(self.path()).await?;
        Ok([direct, sandbox, path])
    }

    async fn rate(&self, work: impl Future<Output = Result<usize>>) -> Result<f64> {
        let started = Instant::now();
        let rows = work.await?;
        if rows != self.samples.len() {
            bail!("{rows} activations came for {} photos", self.samples.len());
        }
        Ok(rows as f64 / started.elapsed().as_secs_f64())
    }

    async fn direct(&self) -> Result<usize> {
        let calls = self.samples.chunks(GRANT).map(|samples| async move {
            let loaded = self
                .loader
                .load(samples.to_vec(), self.spec, PixelFormat::F32)
                .await?;
            anyhow::Ok(self.executor.submit(&self.stage, loaded.pixels).await?.rows()?)
        });
        stream::iter(calls)
            .buffer_unordered(CALLS)
            .try_fold(0, async |sum, rows| Ok(sum + rows))
            .await
    }

    async fn sandbox(&self) -> Result<usize> {
        let context = CallContext {
            executor: Arc::clone(&self.executor) as Arc<dyn GraphExecutor>,
            loader: Arc::clone(&self.loader),
            objects: Arc::clone(&self.store) as _,
            allowance: Allowance::new(Limits::default()),
            labels: Labels::default(),
        };
        let calls = self.samples.chunks(GRANT).map(|samples| {
            let context = context.clone();
            async move {
                anyhow::Ok(
                    self.guest
                        .extract(samples, &self.job, context)
                        .await?
                        .activations
                        .rows()?,
                )
            }
        });
        stream::iter(calls)
            .buffer_unordered(CALLS)
            .try_fold(0, async |sum, rows| Ok(sum + rows))
            .await
    }

    async fn path(&self) -> Result<usize> {
        let limit = self.samples.len() * 4096 * 4;
        let mut answer = self
            .client
            .extract(&self.request, self.format.clone(), limit)
            .await?;
        let mut rows = 0;
        while let Some(batches) = answer.next().await.context("the host's answer broke")? {
            rows += batches
                .iter()
                .map(frostline_wire::ActivationBatch::len)
                .sum::<usize>();
        }
        Ok(rows)
    }
}

fn requested(position: u32, sample: &SampleRef) -> RequestedSample {
    RequestedSample {
        position,
        key: sample.key.clone(),
        etag: sample.etag.clone(),
    }
}
