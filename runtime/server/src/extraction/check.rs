//! Validation of extraction requests.

use super::size::{GrantSize, sample_bytes};
use super::work::{LoaderSource, Meters, RowWork};
use crate::caller::Caller;
use crate::config::Limits;
use crate::jobs::{StageClock, TimedLanes};
use crate::refusal::Refusal;
use crate::scheduling::TensorMemory;
use frostline_batching::Kind;
use frostline_images::{BatchLoader, LoaderOptions};
use frostline_objects::Store;
use frostline_sandbox::{Allowance, Call, CallContext, Guest, Labels, ModelView};
use frostline_tensor::{Normalization, Precision, SampleLoader, Stage};
use frostline_wire::{
    Activation, Description, Encoding, ExtractionRequest, JobStage, Pixels, QuotaKey, RequestedSample,
    RowFormat, Split, TensorInfo, UploadRef, Values, View,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Bytes to reserve for the linear memory of a guest that describes itself.
const DESCRIBE_MEMORY: u64 = 2 << 20;

/// Maximum time to wait for [`DESCRIBE_MEMORY`].
const MEMORY_TIMEOUT: Duration = Duration::from_secs(60);

/// A validated extraction request.
pub(super) struct CheckedExtraction {
    pub(super) work: RowWork,
    pub(super) rows: RowFormat,
    pub(super) encoding: Encoding,
    pub(super) samples: Vec<RequestedSample>,
    /// Memory requirements of the grants. `None` if objects are sent unchanged: memory is then reserved per
    /// object.
    pub(super) size: Option<GrantSize>,
    /// Accounting for tensors held on behalf of the guest. Grants cover part of this memory.
    pub(super) tensors: Arc<TensorMemory>,
    /// Quotas of the extraction and the amounts used so far.
    pub(super) allowance: Arc<Allowance>,
}

/// Checks limits, quotas and data grants, and that the model and the guest exist. The guest is not called.
pub(super) fn precheck(caller: &Caller, request: &ExtractionRequest) -> Result<(), Refusal> {
    check_samples(&request.samples, &caller.config().limits)?;
    caller.store(&request.root, Kind::Read)?;
    check_encoding(request.encoding, &request.split)?;
    request
        .terms
        .check()
        .map_err(|terms| Refusal::request(terms.to_string()))?;
    check_view(request.view.as_ref(), &request.split)?;
    if let Split::None | Split::Input = request.split {
        caller.check_quota(QuotaKey::ObjectReads, request.samples.len() as u64)?;
    }
    if request.digests && request.split != Split::None {
        return Err(Refusal::request("digests require the split 'none'".to_owned()));
    }
    if request.split != Split::None {
        caller.model(required(request.model.as_ref(), "model", &request.split)?)?;
        caller.find_guest(required(request.guest.as_ref(), "guest", &request.split)?)?;
    }
    Ok(())
}

/// Validates the request of extraction `id`, which already has a permit, against the description of the
/// guest.
pub(super) async fn check(
    caller: &Caller,
    id: String,
    request: ExtractionRequest,
    clock: &Arc<StageClock>,
) -> Result<CheckedExtraction, Refusal> {
    let tensors = TensorMemory::new(caller.memory(Kind::Grant));
    let allowance = caller.allowance_with(&tensors);
    let meters = Meters {
        allowance: Arc::clone(&allowance),
        clock: Arc::clone(clock),
    };
    let store = caller.store(&request.root, kind_of_reads(&request.split))?;
    count_host_reads(caller, &allowance, &request)?;
    let most = caller.config().grant;
    let (work, rows, size) = match &request.split {
        Split::None => {
            let source = LoaderSource::new(caller, store, &meters);
            let digests = request.digests;
            (RowWork::Objects { source, digests }, RowFormat::Object, None)
        }
        Split::Input => {
            let (_, _, description) = describe_guest(caller, &request, &allowance, &tensors).await?;
            let loader = loader(caller, store, request.view, &meters);
            let (work, rows) = pixels(loader, &description, request.encoding)?;
            let size = GrantSize::new(None, 0, &rows, &request, most);
            (work, rows, Some(size))
        }
        Split::Cut(cut) => {
            let (guest, model, description) = describe_guest(caller, &request, &allowance, &tensors).await?;
            check_augments(&request, &description)?;
            let stage = Stage {
                precision: caller.config().device.precision(request.terms.precision),
                ..stage(&model, &description, cut)
            };
            let width = stage.pixels.map_or(size_of::<f32>(), |_| size_of::<u8>());
            let input = sample_bytes(&model.input_shape, width);
            let call = Call::new(model, &description, cut, &request.parameters)?;
            let tensors = cut_tensors(caller, &request, &description, cut)?;
            let row = call.row().dims().to_vec();
            let rows = request.encoding.values.rows_of(row, &tensors);
            let max_samples = description.max_samples.map_or(usize::MAX, |most| most as usize);
            let size = GrantSize::new(Some(stage), input, &rows, &request, most.min(max_samples));
            let context = Box::new(context(caller, store, id, &request, &meters));
            (RowWork::Activations { guest, call, context }, rows, Some(size))
        }
    };
    Ok(CheckedExtraction {
        work,
        rows,
        encoding: request.encoding,
        samples: request.samples,
        size,
        tensors,
        allowance,
    })
}

/// Returns the tensors of a row at `cut`: those that the guest defines, or those that the model concatenates.
fn cut_tensors(
    caller: &Caller,
    request: &ExtractionRequest,
    description: &Description,
    cut: &str,
) -> Result<Vec<TensorInfo>, Refusal> {
    let served = description.cuts.iter().find(|served| served.name == cut);
    match served.map(|served| &served.activation) {
        Some(Activation::Custom(tensors)) => Ok(tensors.clone()),
        _ => caller.cut_tensors(required(request.model.as_ref(), "model", &request.split)?, cut),
    }
}

/// Returns the kind of memory for objects. Unchanged objects stay in memory until they are sent, so tenants share
/// this memory fairly, as for grants.
fn kind_of_reads(split: &Split) -> Kind {
    match split {
        Split::None => Kind::Grant,
        Split::Input | Split::Cut(_) => Kind::Read,
    }
}

/// Counts the objects that the host reads without a call of the guest.
fn count_host_reads(
    caller: &Caller,
    allowance: &Allowance,
    request: &ExtractionRequest,
) -> Result<(), Refusal> {
    let reads = match &request.split {
        Split::None | Split::Input => request.samples.len(),
        Split::Cut(_) => 0,
    };
    let read = allowance.read_objects(reads);
    read.map_err(|error| Refusal::quota(error, &caller.tenant().name))
}

/// Returns the stage up to `cut` in full precision.
fn stage(model: &ModelView, description: &Description, cut: &str) -> Stage {
    Stage {
        model: model.sha256.clone(),
        from: model.input.clone(),
        to: cut.to_owned(),
        pixels: match &description.pixels {
            Pixels::Spec(spec) => Some(Normalization::from_spec(spec)),
            Pixels::Own => None,
        },
        precision: Precision::Full,
    }
}

/// Rejects encodings that the split does not support. Objects are sent unchanged because most files are
/// compressed images. Only pixels have integer values of 8 bits.
fn check_encoding(encoding: Encoding, split: &Split) -> Result<(), Refusal> {
    match split {
        Split::None if encoding != Encoding::F32 => Err(Refusal::request(format!(
            "encoding {encoding} is not supported for the split none, which sends objects unchanged; use f32"
        ))),
        Split::Cut(_) if encoding.values == Values::U8 => Err(Refusal::request(format!(
            "encoding u8 is supported for the split input only, not for {split}"
        ))),
        _ => Ok(()),
    }
}

/// Rejects invalid augmentations before any work starts. The split `none` supports no augmentation, because
/// objects are sent unchanged.
pub(crate) fn check_view(view: Option<&View>, split: &Split) -> Result<(), Refusal> {
    let Some(view) = view else {
        return Ok(());
    };
    view.augmentation
        .check()
        .map_err(|error| Refusal::request(error.to_string()))?;
    match split {
        Split::None => Err(Refusal::request(
            "a view is not supported for the split none, which sends objects unchanged; omit it and augment after decoding",
        )),
        Split::Input | Split::Cut(_) => Ok(()),
    }
}

/// Rejects augmentation if the guest computes its own input.
fn check_augments(request: &ExtractionRequest, description: &Description) -> Result<(), Refusal> {
    if request.view.is_none() || description.augments() {
        return Ok(());
    }
    Err(Refusal::request(format!(
        "guest {} {} does not support augmentation: it computes the input of the model itself; describe it with set-recipe, or disable \
         augmentation",
        description.name, description.version
    )))
}

pub(crate) fn check_samples(samples: &[RequestedSample], limits: &Limits) -> Result<(), Refusal> {
    if samples.is_empty() || samples.len() > limits.samples {
        let count = samples.len();
        let limit = limits.samples;
        return Err(Refusal::request(format!(
            "the request has {count} samples, but 1 to {limit} are allowed; split it into several requests"
        )));
    }
    let mut positions = HashSet::with_capacity(samples.len());
    for RequestedSample { position, sample } in samples {
        if !positions.insert(position) {
            return Err(Refusal::request(format!("duplicate position {position}")));
        }
        let etag = sample.etag.as_deref().unwrap_or_default();
        if sample.key.is_empty() || sample.key.len() > limits.key_bytes || etag.len() > limits.key_bytes {
            let limit = limits.key_bytes;
            return Err(Refusal::request(format!(
                "the key or etag at position {position} is empty or exceeds {limit} bytes"
            )));
        }
    }
    Ok(())
}

fn required<'a>(pin: Option<&'a UploadRef>, what: &str, split: &Split) -> Result<&'a UploadRef, Refusal> {
    pin.ok_or_else(|| {
        Refusal::request(format!(
            "the split {split} requires a {what}: its name and SHA-256"
        ))
    })
}

/// Returns the guest and the model of a request, and the guest's description for this model.
async fn describe_guest(
    caller: &Caller,
    request: &ExtractionRequest,
    allowance: &Arc<Allowance>,
    tensors: &Arc<TensorMemory>,
) -> Result<(Guest, Arc<ModelView>, Arc<Description>), Refusal> {
    let model = caller.model(required(request.model.as_ref(), "model", &request.split)?)?;
    let guest = required(request.guest.as_ref(), "guest", &request.split)?;
    let guest = caller.guest(guest, allowance).await?;
    // Memory for grants is divided fairly, so the first request of a tenant also gets a share.
    let memory = caller
        .memory(Kind::Grant)
        .reserve(DESCRIBE_MEMORY, MEMORY_TIMEOUT)
        .await?;
    let _cover = tensors.cover(memory.bytes());
    let description = caller.describe(&guest, &model, &request.parameters, allowance);
    let description = description.await?;
    Ok((guest, model, description))
}

fn pixels(
    loader: Arc<dyn SampleLoader>,
    description: &Description,
    encoding: Encoding,
) -> Result<(RowWork, RowFormat), Refusal> {
    let Pixels::Spec(spec) = description.pixels else {
        return Err(Refusal::request(format!(
            "guest {} computes its own input, so the split input is not available; use one of its cuts",
            description.name
        )));
    };
    let shape = spec.sample_shape().to_vec();
    let format = encoding.values.pixel_format();
    Ok((
        RowWork::Pixels { loader, spec, format },
        encoding.values.rows(shape),
    ))
}

fn loader(caller: &Caller, store: Arc<Store>, view: Option<View>, meters: &Meters) -> Arc<dyn SampleLoader> {
    let on_decoded = caller.metrics().on_decoded();
    let decoding = Arc::clone(&meters.clock);
    Arc::new(BatchLoader::new(
        Arc::new(LoaderSource::new(caller, store, meters)),
        caller.decoders(),
        LoaderOptions {
            decode: caller.config().limits.decode,
            room: Some(Arc::new(caller.memory(Kind::Decode))),
            view,
            on_decoded: Some(Arc::new(move |took| {
                on_decoded(took);
                decoding.add(JobStage::Decode, took, 1);
            })),
            ..LoaderOptions::default()
        },
    ))
}

/// Creates the context in which the guest's calls run.
fn context(
    caller: &Caller,
    store: Arc<Store>,
    id: String,
    request: &ExtractionRequest,
    meters: &Meters,
) -> CallContext {
    let guest = request.guest.as_ref().map(|pin| pin.name.clone());
    let guest = guest.unwrap_or_default();
    CallContext {
        executor: Arc::new(TimedLanes {
            lanes: caller.lanes(&id, meters.clock.job(), request.terms),
            clock: Arc::clone(&meters.clock),
        }),
        loader: loader(caller, Arc::clone(&store), None, meters),
        augmented: request
            .view
            .map(|view| loader(caller, Arc::clone(&store), Some(view), meters)),
        objects: Arc::new(LoaderSource::new(caller, store, meters)),
        allowance: Arc::clone(&meters.allowance),
        on_log_line: Some(caller.on_log_line(&guest, &id)),
        labels: Labels {
            tenant: caller.tenant().name.clone(),
            guest,
            extraction: id,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use frostline_wire::SampleRef;

    fn sample(position: u32, key: &str) -> RequestedSample {
        RequestedSample {
            position,
            sample: SampleRef::new(key),
        }
    }

    #[test]
    fn encodings_are_checked_against_the_split() {
        let ok = |word: &str, split: &str| check_encoding(word.parse().unwrap(), &Split::from(split)).is_ok();
        for word in ["f32", "f32+lz4", "f16", "f16+zstd", "int8", "int8+lz4"] {
            assert!(ok(word, "features") && ok(word, "input"), "{word}");
            assert_eq!(ok(word, "none"), word == "f32", "{word}");
        }
        assert!(ok("u8+zstd", "input") && !ok("u8+zstd", "features") && !ok("u8", "none"));
    }

    #[test]
    fn positions_are_unique_and_keys_sane() {
        let limits = Limits {
            samples: 3,
            ..Limits::default()
        };
        let ok = |samples: &[RequestedSample]| check_samples(samples, &limits).is_ok();
        assert!(ok(&[sample(0, "a"), sample(u32::MAX, "a")]));
        assert!(!ok(&[]));
        assert!(!ok(&[sample(0, "a"), sample(0, "b")]));
        assert!(!ok(&[sample(0, "")]));
        assert!(!ok(&[sample(0, &"k".repeat(1025))]));
        assert!(!ok(&[
            sample(0, "a"),
            sample(1, "a"),
            sample(2, "a"),
            sample(3, "a")
        ]));
    }
}
