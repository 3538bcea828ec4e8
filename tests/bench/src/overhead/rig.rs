//! Setup for extracting the same activations in several ways.

use super::bare::{Bare, Batches};
use crate::networks::exported;
use crate::photos::Photos as Folder;
use crate::run::{binary, text};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use frostline_client::{HostClient, Token};
use frostline_engine::{
    ChildLanes, Device, Lanes, LanesConfig, LanesPlace, SessionOptions, StageSource, TenantLanes,
};
use frostline_graph::Model;
use frostline_images::{BatchLoader, ByteSource, DecodePool, LoaderOptions, ReservedBytes};
use frostline_objects::{LARGEST_READ, Store};
use frostline_sandbox::{
    Allowance, Call, CallContext, CutView, Guest, Labels, Limits, ModelView, Sandbox, SandboxConfig,
};
use frostline_server::{EngineSettings, Host, HostSettings, RunningHost};
use frostline_tensor::{
    BoxFuture, GraphExecutor, Normalization, OpError, PixelFormat, PixelSpec, Precision, SampleLoader,
    SampleRef, Stage,
};
use frostline_trainer::Guest as GuestFile;
use frostline_wire::{
    Encoding, ExtractionRequest, Layout, RequestedSample, RowFormat, Split, Terms, UploadRef, Values,
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Samples per guest call, and number of concurrent calls. Two calls overlap decoding and computing, the
/// third hides the time between calls.
const GRANT: usize = 32;
const CALLS: usize = 3;

/// A way to activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Directly on the engine in this process.
    Direct,
    /// Directly on the engine in child processes.
    Child,
    /// The stock guest with lanes in this process.
    Sandbox,
    /// A host with lanes in this process.
    Path,
    /// A host with lanes in child processes, as under `frostline serve`.
    Serve,
}

pub(super) const WAYS: [Way; 5] = [Way::Direct, Way::Child, Way::Sandbox, Way::Path, Way::Serve];

impl Way {
    /// Name in report keys.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Child => "child",
            Self::Sandbox => "sandbox",
            Self::Path => "path",
            Self::Serve => "serve",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Direct => "lanes in process",
            Self::Child => "lanes in child processes",
            Self::Sandbox => "stock guest in the sandbox",
            Self::Path => "host, HTTP and Arrow",
            Self::Serve => "host with lanes in child processes",
        }
    }
}

pub(crate) struct Rig {
    network: String,
    prefix: Bytes,
    samples: Vec<SampleRef>,
    spec: PixelSpec,
    stage: Stage,
    here: Engine,
    child: Engine,
    loader: Arc<dyn SampleLoader>,
    store: Arc<Store>,
    guest: Guest,
    call: Call,
    path: Served,
    serve: Served,
    split: Split,
    root: String,
    format: RowFormat,
    row_bytes: usize,
}

/// Lanes, with a tenant's executor.
struct Engine {
    lanes: Lanes,
    executor: Arc<TenantLanes>,
}

/// A host with guest and prefix uploaded, and a client.
struct Served {
    host: RunningHost,
    client: HostClient,
    guest: UploadRef,
    model: UploadRef,
    _state: TempDir,
}

/// Source of the network's stages.
struct OneModel(Model);

impl StageSource for OneModel {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let invalid = |error: frostline_graph::GraphError| OpError::invalid(error.to_string());
        let part = self
            .0
            .slice(Some(&stage.from), Some(&stage.to))
            .map_err(invalid)?;
        Ok(part.to_bytes().map_err(invalid)?.into())
    }
}

struct Photos(Arc<Store>);

impl ByteSource for Photos {
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<ReservedBytes, OpError>> {
        let store = Arc::clone(&self.0);
        async move { Ok(store.read_sample(&sample, LARGEST_READ).await?.into()) }.boxed()
    }
}

/// Lanes in child processes, as under `frostline serve`.
fn in_child() -> Result<LanesPlace> {
    Ok(LanesPlace::Child(ChildLanes::new(binary()?, ["lanes"])))
}

impl Engine {
    fn start(place: LanesPlace, prefix: &Model) -> Result<Self> {
        let config = LanesConfig {
            place,
            ..LanesConfig::default()
        };
        let lanes = Lanes::start(config, Arc::new(OneModel(prefix.clone())))?;
        let executor = Arc::new(lanes.for_tenant("bench"));
        Ok(Self { lanes, executor })
    }
}

impl Served {
    async fn start(place: LanesPlace, data: &str, prefix: Bytes) -> Result<Self> {
        let state = tempfile::tempdir()?;
        let settings = HostSettings {
            engine: EngineSettings {
                device: Device::Cpu.to_string(),
                ..EngineSettings::default()
            },
            listen: "127.0.0.1:0".to_owned(),
            state: text(state.path())?.to_owned(),
            data: vec![data.to_owned()],
            ..HostSettings::default()
        };
        let mut config = settings.check()?;
        config.lanes_place = place;
        let host = Host::start(config).await?;
        let token = Token::read(&state.path().join("token"))?;
        let client = HostClient::new(&format!("http://{}", host.address()), Some(token))?;
        let pin = |name: &str, sha256: String| UploadRef {
            name: name.to_owned(),
            sha256,
        };
        let guest = client.push_guest("prefix", GuestFile::stock().bytes).await?;
        let model = client.push_model("network", prefix).await?;
        Ok(Self {
            host,
            client,
            guest: pin("prefix", guest.sha256),
            model: pin("network", model.sha256),
            _state: state,
        })
    }
}

impl Rig {
    pub(crate) async fn start(network: &str, cut: &str, photos: &Folder) -> Result<Self> {
        let data = std::path::absolute(photos.part("train"))?;
        let root = text(&data)?.to_owned();
        let model = Model::read(exported(network)?)?;
        let described = model.network()?;
        let prefix = model.slice(None, Some(cut))?;
        let bytes = Bytes::from(prefix.to_bytes()?);
        let dims = described.input.shape.dims().to_vec();
        let &[_, height, width] = dims.as_slice() else {
            bail!("the network's input is not an image: {dims:?}")
        };
        let path = Served::start(LanesPlace::InProcess, &root, bytes.clone()).await?;
        let serve = Served::start(in_child()?, &root, bytes.clone()).await?;
        let listed = path.client.objects(&root, Layout::Auto).await?;
        let samples = listed.into_iter().map(|object| object.sample);
        let store = Arc::new(Store::open(&root)?);
        let pool = DecodePool::start(std::thread::available_parallelism()?.get())?;
        let photos = Arc::new(Photos(Arc::clone(&store)));
        let shape = &described.cut(cut)?.shape;
        let (row, row_bytes) = (shape.dims().to_vec(), shape.bytes(4)?);
        let view = Arc::new(ModelView {
            sha256: path.model.sha256.clone(),
            input: described.input.name.clone(),
            input_shape: dims.clone(),
            joined_inputs: Vec::new(),
            cuts: vec![CutView {
                name: cut.to_owned(),
                shape: row.clone(),
            }],
        });
        let sandbox = Sandbox::new(SandboxConfig::default())?;
        let guest = sandbox.prepare(GuestFile::stock().bytes).await?;
        let description = guest.describe(&view, "").await?;
        let spec = PixelSpec::imagenet(u32::try_from(height)?, u32::try_from(width)?);
        Ok(Self {
            network: network.to_owned(),
            prefix: bytes,
            samples: samples.collect(),
            spec,
            stage: Stage {
                model: view.sha256.clone(),
                from: view.input.clone(),
                to: cut.to_owned(),
                // Same as for images loaded by guests.
                pixels: Some(Normalization::from_spec(&spec)),
                precision: Precision::Full,
            },
            here: Engine::start(LanesPlace::InProcess, &prefix)?,
            child: Engine::start(in_child()?, &prefix)?,
            loader: Arc::new(BatchLoader::new(photos, pool, LoaderOptions::default())),
            store,
            call: Call::new(view, &description, cut, "")?,
            guest,
            path,
            serve,
            split: Split::Cut(cut.to_owned()),
            root,
            format: RowFormat::Tensor(Values::F32, row),
            row_bytes,
        })
    }

    /// Limits the photos to the first `samples`.
    pub(crate) fn use_photos(&mut self, samples: usize) {
        self.samples.truncate(samples);
    }

    /// Creates a bare loop with the same prefix and photos.
    pub(crate) fn bare(&self) -> Result<Bare> {
        let config = self.here.lanes.config();
        let options = SessionOptions {
            threads: config.threads_per_lane,
            ..SessionOptions::default()
        };
        Bare::open(
            &self.prefix,
            config.lanes,
            &options,
            self.stage.from.clone(),
            Batches {
                samples: self.samples.clone(),
                spec: self.spec,
                loader: Arc::clone(&self.loader),
            },
        )
    }

    /// One line about the measurement.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} up to {}, {:.0} kB of f32 per sample, {} photos of {} per round, {CALLS} concurrent calls of {GRANT} samples, {} lanes",
            self.network,
            self.stage.to,
            self.row_bytes as f64 / 1e3,
            self.samples.len(),
            self.root,
            self.here.lanes.config().lanes
        )
    }

    /// Returns the images per second of each way. Rounds start with different ways.
    pub(super) async fn round(&self, round: usize) -> Result<[f64; WAYS.len()]> {
        let mut rates = [f64::NAN; WAYS.len()];
        for turn in 0..WAYS.len() {
            let place = (round + turn) % WAYS.len();
            if let (Some(way), Some(rate)) = (WAYS.get(place), rates.get_mut(place)) {
                *rate = self.rate(*way).await?;
            }
        }
        Ok(rates)
    }

    /// Returns the images per second of one way.
    pub(crate) async fn rate(&self, way: Way) -> Result<f64> {
        let started = Instant::now();
        let rows = match way {
            Way::Direct => self.submit(&self.here).await?,
            Way::Child => self.submit(&self.child).await?,
            Way::Sandbox => self.sandbox().await?,
            Way::Path => self.extract(&self.path).await?,
            Way::Serve => self.extract(&self.serve).await?,
        };
        if rows != self.samples.len() {
            bail!("received {rows} activations for {} photos", self.samples.len());
        }
        Ok(rows as f64 / started.elapsed().as_secs_f64())
    }

    async fn submit(&self, engine: &Engine) -> Result<usize> {
        let calls = self.samples.chunks(GRANT).map(|samples| async move {
            let loaded = self
                .loader
                .load(samples.to_vec(), self.spec, PixelFormat::U8)
                .await?;
            anyhow::Ok(engine.executor.submit(&self.stage, loaded.pixels).await?.rows()?)
        });
        stream::iter(calls)
            .buffer_unordered(CALLS)
            .try_fold(0, async |sum, rows| Ok(sum + rows))
            .await
    }

    async fn sandbox(&self) -> Result<usize> {
        let context = CallContext {
            executor: Arc::clone(&self.here.executor) as Arc<dyn GraphExecutor>,
            loader: Arc::clone(&self.loader),
            augmented: None,
            objects: Arc::clone(&self.store) as _,
            allowance: Allowance::new(Limits::default()),
            labels: Labels::default(),
            on_log_line: None,
        };
        let calls = self.samples.chunks(GRANT).map(|samples| {
            let context = context.clone();
            async move {
                let extracted = self.guest.extract(samples, &self.call, context).await?;
                anyhow::Ok(extracted.activations.rows()?)
            }
        });
        stream::iter(calls)
            .buffer_unordered(CALLS)
            .try_fold(0, async |sum, rows| Ok(sum + rows))
            .await
    }

    async fn extract(&self, served: &Served) -> Result<usize> {
        let samples = (0..).zip(&self.samples);
        let request = ExtractionRequest {
            root: self.root.clone(),
            split: self.split.clone(),
            guest: Some(served.guest.clone()),
            model: Some(served.model.clone()),
            parameters: String::new(),
            encoding: Encoding::F32,
            terms: Terms::default(),
            view: None,
            samples: samples
                .map(|(position, sample)| RequestedSample {
                    position,
                    sample: sample.clone(),
                })
                .collect(),
            digests: false,
        };
        let limit = self.format.message_bytes(self.samples.len() as u64, 0);
        let limit = usize::try_from(limit)?;
        let mut answer = served
            .client
            .extract(&request, self.format.clone(), limit)
            .await?;
        let mut rows = 0;
        while let Some(batches) = answer.next().await.context("the host's answer ended early")? {
            let lengths = batches.iter().map(frostline_wire::ActivationBatch::len);
            rows += lengths.sum::<usize>();
        }
        Ok(rows)
    }

    pub(crate) async fn end(self) {
        for served in [self.path, self.serve] {
            served.host.shutdown(Duration::from_secs(5)).await;
        }
    }
}
