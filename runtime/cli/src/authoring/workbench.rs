//! Test environment for guests, with the sandbox, a lane, decoders and a data root, but without a host.

use crate::arguments::InterfaceFlags;
use crate::host::data_url;
use crate::output::bytes as in_words;
use crate::train::read_model;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use frostline_engine::{Device, Lanes, LanesConfig, StageSource, TenantLanes};
use frostline_graph::Model;
use frostline_images::{BatchLoader, ByteSource, DecodePool, LoaderOptions, ReservedBytes};
use frostline_objects::{LARGEST_READ, Store};
use frostline_sandbox::{Allowance, CallContext, CutView, Labels, Limits, ModelView};
use frostline_tensor::{BoxFuture, OpError, SampleRef, Stage};
use frostline_wire::TensorInfo;
use std::path::Path;
use std::sync::Arc;

pub(super) fn read_guest(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read the guest {}", file.display()))
}

/// A network from a file, for guests and for lanes.
pub(super) struct LocalModel {
    pub(super) model: Model,
    /// The model's description for guests.
    pub(super) view: Arc<ModelView>,
}

impl LocalModel {
    pub(super) fn read(file: &Path, interface: &InterfaceFlags) -> Result<Self> {
        let model = read_model(file, interface)?;
        let network = model.network()?;
        let joined = model.joint_inputs().unwrap_or_default();
        let view = ModelView {
            sha256: model.sha256()?,
            input: network.input.name.clone(),
            input_shape: network.input.shape.dims().to_vec(),
            joined_inputs: joined
                .into_iter()
                .map(|input| TensorInfo {
                    dtype: input.dtype(),
                    shape: input.shape.dims().to_vec(),
                    name: input.name,
                })
                .collect(),
            cuts: network
                .cuts
                .iter()
                .map(|cut| CutView {
                    name: cut.name.clone(),
                    shape: cut.shape.dims().to_vec(),
                })
                .collect(),
        };
        Ok(Self {
            model,
            view: Arc::new(view),
        })
    }

    /// Checks the model with a host's default limits for uploads. Returns the size of the serialized model in
    /// bytes, including weights.
    pub(super) fn admit(&self) -> Result<u64> {
        let limits = frostline_server::Limits::default();
        let file = self.model.to_bytes()?;
        let size = file.len() as u64;
        ensure!(
            size <= limits.model_bytes,
            "the model has {} and exceeds the limit of {}; upload only the frozen layers",
            in_words(size),
            in_words(limits.model_bytes)
        );
        Model::admit(file.into(), &limits.model)?;
        Ok(size)
    }
}

/// Provides the stages of a single network.
struct OneModel(Model);

impl StageSource for OneModel {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let part = self
            .0
            .slice(Some(&stage.from), Some(&stage.to))
            .and_then(|part| part.to_bytes());
        part.map(Bytes::from)
            .map_err(|error| OpError::invalid(format!("stage {} to {}: {error}", stage.from, stage.to)))
    }
}

pub(super) struct Workbench {
    executor: Arc<TenantLanes>,
    store: Arc<Store>,
    decoders: DecodePool,
    _lanes: Lanes,
}

impl Workbench {
    /// Opens the data root and an engine for `model` on `device`. The engine has a single lane with all
    /// cores, because calls are not concurrent.
    pub(super) fn open(data: &str, model: LocalModel, device: Device) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let config = LanesConfig {
            lanes: 1,
            threads_per_lane: cores,
            ..LanesConfig::for_device(device)
        };
        let lanes = Lanes::start(config, Arc::new(OneModel(model.model)))?;
        Ok(Self {
            executor: Arc::new(lanes.for_tenant("")),
            store: Arc::new(Store::open(&data_url(data)?)?),
            decoders: DecodePool::start(cores).context("no threads to decode images")?,
            _lanes: lanes,
        })
    }

    /// Returns the context of an extraction with a host's default limits.
    pub(super) fn context(&self, guest: &str) -> CallContext {
        let source = Arc::new(Objects(Arc::clone(&self.store)));
        CallContext {
            executor: Arc::clone(&self.executor) as _,
            loader: Arc::new(BatchLoader::new(
                source,
                self.decoders.clone(),
                LoaderOptions::default(),
            )),
            augmented: None,
            objects: Arc::clone(&self.store) as _,
            allowance: Allowance::new(Limits::default()),
            labels: Labels {
                guest: guest.to_owned(),
                ..Labels::default()
            },
            on_log_line: None,
        }
    }
}

/// Provides objects of the data root to image loading.
struct Objects(Arc<Store>);

impl ByteSource for Objects {
    fn read(&self, sample: SampleRef) -> BoxFuture<Result<ReservedBytes, OpError>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move { Ok(store.read_sample(&sample, LARGEST_READ).await?.into()) })
    }
}
