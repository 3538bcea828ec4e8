use super::file::{Format, check_output};
use crate::arguments::{ExtractFlags, Inputs};
use crate::host::data_url;
use crate::reporter::{Reporter, warn};
use crate::train::{model_name, read_model_and_pixels};
use anyhow::Result;
use bytes::Bytes;
use frostline_client::{Hosts, Inquiry, Source, UploadKind, content_name};
use frostline_engine::library_version;
use frostline_features::{Provenance, Rounding};
use frostline_graph::{GraphError, Model};
use frostline_job::{Event, PixelFlags};
use frostline_rows::RowCache;
use frostline_trainer::{Guest, cut_tensors, frozen_up_to, input_pixels, normalized_twice};
use frostline_wire::{TensorInfo, UploadRef};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Input of an extraction.
pub(super) struct ExtractionInput {
    /// The data root.
    pub(super) root: String,
    pub(super) format: Format,
    name: String,
    pub(super) layers: Bytes,
    layers_sha256: String,
    pub(super) cut: String,
    /// Tensors that an activation at the cut concatenates. Empty for a single tensor.
    pub(super) tensors: Vec<TensorInfo>,
    guest: Guest,
    pub(super) stock_guest: bool,
}

impl ExtractionInput {
    pub(super) fn read(flags: &ExtractFlags, json: bool) -> Result<Self> {
        let format = check_output(&flags.out)?;
        let pixels = flags.pixels.settings()?;
        let (model, cut) = model_and_cut(flags, &pixels)?;
        let mut guest = Guest::read(flags.guest.as_deref(), flags.parameters.as_deref())?;
        pixels.check_excludes_parameters(flags.parameters.as_deref())?;
        // A custom guest without parameters gets no recipe, unless preprocessing flags are set.
        if guest.is_stock() || !pixels.is_empty() {
            let (recipe, source) = input_pixels(&model, &pixels)?;
            guest.parameters = Some(serde_json::to_string(&recipe)?);
            warn(&Event::Pixels { recipe, source }, json);
            if let Some(message) = normalized_twice(&model, &recipe, source) {
                warn(&Event::Warning { message }, json);
            }
        }
        Ok(Self {
            root: data_url(&flags.inputs.data)?,
            format,
            name: model_name(&flags.inputs.model),
            layers: model.slice(None, Some(&cut))?.to_bytes()?.into(),
            layers_sha256: model.layers_sha256(&cut)?,
            tensors: cut_tensors(model.network()?.cut(&cut)?),
            cut,
            guest,
            stock_guest: flags.guest.is_none(),
        })
    }

    /// Opens the cache. Returns `None` if the cache is off or cannot be opened, because extraction also works
    /// without a cache.
    pub(super) fn open_cache(
        &self,
        flags: &ExtractFlags,
        source: &Source,
        rows: u64,
        reporter: &Arc<Reporter>,
    ) -> Option<Arc<RowCache>> {
        let cache = flags.cache.open()?;
        let made = Provenance {
            model: self.name.clone(),
            freeze: self.cut.clone(),
            data: self.root.clone(),
            layers: self.layers_sha256.clone(),
            guest: hex::encode(Sha256::digest(&self.guest.bytes)),
            parameters: source.parameters.clone(),
            rounding: Rounding::for_split(flags.encoding, &source.split, &self.cut),
            precision: source.terms.precision,
            fixed_batch: source.terms.fixed_batch,
            library: library_version().unwrap_or_default(),
            device: flags.device.clone(),
            exactly: None,
            shape: source.shape.clone(),
            tensors: self.tensors.clone(),
        };
        let told = Arc::clone(reporter);
        let stopped = Arc::new(move |why| told.warning(format!("caching features stopped: {why}")));
        RowCache::open(&cache, made, rows, stopped)
            .inspect_err(|error| reporter.warning(format!("cannot cache features: {error}")))
            .ok()
            .map(Arc::new)
    }

    /// Uploads the guest and the layers, and returns the request settings.
    pub(super) async fn send(&self, hosts: &Hosts, flags: &ExtractFlags) -> Result<Inquiry> {
        let guest = &self.guest;
        let layers = self.layers.clone();
        Ok(Inquiry {
            root: self.root.clone(),
            guest: Some(send(hosts, UploadKind::Guest, &guest.name, guest.bytes.clone()).await?),
            model: Some(send(hosts, UploadKind::Model, &self.name, layers).await?),
            parameters: guest.parameters.clone().unwrap_or_default(),
            encoding: flags.encoding,
            terms: (&flags.terms.settings()?).into(),
            request_samples: flags.request_samples,
        })
    }
}

/// Reads the network. If it has several outputs and the cut is one of them, this output is used.
fn read_model(flags: &ExtractFlags, pixels: &PixelFlags) -> Result<Model> {
    let Inputs { model, interface, .. } = &flags.inputs;
    let read = read_model_and_pixels(model, interface, pixels);
    let cut = flags.cut.as_deref().unwrap_or_default();
    match read.as_ref().err().and_then(|error| error.downcast_ref()) {
        Some(GraphError::Outputs { names }) if names.iter().any(|name| name == cut) => {
            read_model_and_pixels(model, &interface.with_output(cut), pixels)
        }
        _ => read,
    }
}

/// Returns the network and the cut. For `output` and for a backbone without a classifier, a linear head is
/// added, and the cut is the input of this head.
fn model_and_cut(flags: &ExtractFlags, pixels: &PixelFlags) -> Result<(Model, String)> {
    let model = read_model(flags, pixels)?;
    let network = model.network()?;
    match flags.cut.as_deref() {
        Some(cut) if ["output", &network.output.name].contains(&cut) && network.named(cut).is_err() => {}
        None if network.head.is_none() => {}
        cut => return Ok(frozen_up_to(model, cut)?),
    }
    Ok(frozen_up_to(model.with_linear_head()?, None)?)
}

async fn send(hosts: &Hosts, kind: UploadKind, name: &str, bytes: Bytes) -> Result<UploadRef> {
    let name = content_name(name, &hex::encode(Sha256::digest(&bytes)));
    let sha256 = hosts.push(kind, &name, bytes).await?.sha256;
    Ok(UploadRef { name, sha256 })
}
