use crate::choice::Offer;
use crate::compute::{KEPT_MIDDLES, SuffixParts};
use crate::pipeline::FeedPlan;
use crate::plan::{Chosen, Layers};
use crate::planning::{self, Known};
use crate::replan::Watch;
use crate::sources::Sources;
use crate::uploading::{self, Look, Parcel};
use crate::{Event, Events, Job, Policy, TrainerError, notes};
use frostline_client::{ClientError, Dataset, Hosts, Listing, SampleFiles};
use frostline_engine::{Device, SessionOptions};
use frostline_graph::{Model, Network};
use frostline_tensor::PixelSpec;
use frostline_wire::{
    Activation, Description, DescriptionRequest, ErrorClass, Pin, Pixels, ServedCut, Split,
};
use std::sync::Arc;

/// A job that is ready to begin: the data are listed, the network is divided, the host has what it needs.
pub(crate) struct Prepared {
    pub(crate) classes: Vec<String>,
    /// The whole network under its fresh head; trained weights are merged into it.
    pub(crate) headed: Model,
    pub(crate) suffix: SuffixParts,
    pub(crate) feed: FeedPlan,
    pub(crate) sources: Arc<Sources>,
    pub(crate) chosen: Chosen,
    /// What the guest says it makes.
    pub(crate) description: Description,
    /// Bytes received for the listing.
    pub(crate) listed: u64,
    /// Counts the bytes received for measurements.
    pub(crate) measuring: Hosts,
    /// Watches a split that was planned; `None` for one that was given, or that nothing was measured for.
    pub(crate) watch: Option<Watch>,
}

/// The network, divided at the freeze cut.
pub(crate) struct Divided {
    pub(crate) network: Network,
    pub(crate) headed: Model,
    pub(crate) prefix: Model,
    pub(crate) suffix: Model,
    pub(crate) pixels: PixelSpec,
}

/// Threads of an engine: `wanted`, or as many as there are cores.
pub(crate) fn session_options(device: Device, wanted: usize) -> SessionOptions {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    SessionOptions {
        device,
        threads: if wanted == 0 { cores() } else { wanted },
    }
}

/// Runs graph work, which may take seconds on large networks, beside the network's tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TrainerError> + Send + 'static,
) -> Result<T, TrainerError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| TrainerError::Ended { part: "graph work" })?
}

/// Does everything that comes before the first batch.
///
/// With `measure`, a split that is given is measured like one that is to be chosen.
pub(crate) async fn prepare(
    job: &Job,
    measure: bool,
    hosts: &Hosts,
    events: &Events,
) -> Result<Prepared, TrainerError> {
    check_settings(job)?;
    let out = job.out.clone();
    blocking(move || crate::export::check_target(&out)).await?;
    let (lists, measuring) = (hosts.metered(), hosts.metered());
    let listing = lists.listing(&job.root, job.layout).await?;
    let for_dataset = job.clone();
    let (dataset, object_bytes, feed) = blocking(move || arrange(&for_dataset, listing)).await?;
    if dataset.left_out.objects > 0 {
        events(Event::LeftOut(dataset.left_out.clone()));
    }
    events(Event::Dataset {
        classes: dataset.classes.clone(),
        train: dataset.train.len(),
        validation: dataset.validation.len(),
        steps_per_epoch: dataset.train.len().div_ceil(job.batch),
    });
    let (for_division, classes) = (job.clone(), dataset.classes.len());
    let divided = blocking(move || divide(&for_division, classes)).await?;
    let parameters = parameters(job, &divided.pixels)?;
    let (layers, mut look) = look(job, measure, &divided, object_bytes, &feed, &measuring, events).await?;
    let served = provide(job, layers, &mut look, &divided, &parameters, hosts, events).await?;
    let offer = Offer {
        network: &divided.network,
        freeze: &job.freeze,
        description: &served.description,
        object_bytes,
        encoding: job.encoding,
        flow: job.flow,
    };
    let pixels = match served.description.pixels {
        Pixels::Spec(spec) => Some(spec),
        Pixels::Own => None,
    };
    if let Some(spec) = &pixels {
        notes::check(spec, &divided.network)?;
    }
    let sources = Sources {
        root: job.root.clone(),
        guest: served.guest.clone(),
        model: served.model.clone(),
        parameters,
        pixels,
        network: divided.network.clone(),
    };
    let suffix = SuffixParts {
        whole: divided.headed.clone(),
        suffix: divided.suffix.clone(),
        freeze: job.freeze.clone(),
        optimizer: job.optimizer,
        learning_rate: job.learning_rate,
        batch: job.batch.min(feed.train.len()),
        middles: KEPT_MIDDLES,
        options: session_options(job.device, job.threads),
    };
    let (chosen, watch) = match (&job.split, look.stay, look.refused) {
        (_, None, Some(why)) => (offer.here(&why)?, None),
        (_, Some(stay), _) => stay.begin(events)?,
        (Policy::Fixed(split), None, _) if !measure => (offer.fixed(split)?, None),
        (policy, None, None) => {
            let known = Known {
                measured: look.measured,
                layers: served.layers,
            };
            planning::choose(
                job, policy, &measuring, &divided, &offer, &sources, &feed, known, events,
            )
            .await?
        }
    };
    announce(events, &chosen);
    Ok(Prepared {
        classes: dataset.classes,
        headed: divided.headed,
        suffix,
        feed,
        sources: Arc::new(sources),
        description: served.description,
        listed: lists.bytes_received(),
        measuring,
        chosen,
        watch,
    })
}

/// The data divided into classes, parts and batches, and the mean size of their objects.
fn arrange(job: &Job, listing: Listing) -> Result<(Dataset, u64, FeedPlan), TrainerError> {
    let taken = job.guest.takes();
    let dataset = Dataset::from_listing(&job.root, listing, job.validation_share, job.seed, taken)?;
    let (train, validation) = (Arc::clone(&dataset.train), Arc::clone(&dataset.validation));
    let feed = FeedPlan {
        epochs: job.epochs,
        seed: job.seed,
        ahead: job.flow.ahead,
        memory_bytes: job.memory_bytes,
        ..FeedPlan::new(train, validation, job.batch)
    };
    let object_bytes = mean_size(&dataset);
    Ok((dataset, object_bytes, feed))
}

fn check_settings(job: &Job) -> Result<(), TrainerError> {
    let at_least_one = [
        ("the batch size", job.batch),
        ("the number of epochs", job.epochs as usize),
        ("the number of batches ahead", job.flow.ahead),
        ("the number of samples per request", job.flow.request_samples),
        ("the number of open requests", job.flow.window),
    ];
    for (what, value) in at_least_one {
        if value == 0 {
            return Err(TrainerError::Setting {
                what,
                value: "0".to_owned(),
                must: "it must be at least 1",
            });
        }
    }
    if !(job.learning_rate > 0.0 && job.learning_rate.is_finite()) {
        let value = job.learning_rate.to_string();
        return Err(TrainerError::Setting {
            what: "the learning rate",
            value,
            must: "it must be above 0",
        });
    }
    job.optimizer.check().map_err(|source| TrainerError::Training {
        freeze: job.freeze.clone(),
        source,
    })
}

fn divide(job: &Job, classes: usize) -> Result<Divided, TrainerError> {
    let before = job.model.network()?;
    before.freeze_cut(&job.freeze)?;
    job.split.check(&before)?;
    for candidate in job.candidates.iter().flatten() {
        if let Split::Cut(name) = candidate {
            before.cut(name)?;
        }
    }
    let own = job.guest.takes() == SampleFiles::All;
    let pixels = notes::pixels(&job.model, &before, job.pixels, own)?;
    let headed = job.model.replace_head(classes, job.seed)?;
    Ok(Divided {
        network: headed.network()?,
        prefix: headed.slice(None, Some(&job.freeze))?,
        suffix: headed.slice(Some(&job.freeze), None)?,
        headed,
        pixels,
    })
}

fn parameters(job: &Job, pixels: &PixelSpec) -> Result<String, TrainerError> {
    match &job.guest.parameters {
        Some(own) => Ok(own.clone()),
        None => notes::recipe(pixels),
    }
}

/// The frozen layers as a host takes them, and whether they are worth sending. With the split `none` and the stock guest there is
/// nothing to send.
async fn look(
    job: &Job,
    measure: bool,
    divided: &Divided,
    object_bytes: u64,
    feed: &FeedPlan,
    hosts: &Hosts,
    events: &Events,
) -> Result<(Option<Parcel>, Look), TrainerError> {
    if job.split == Policy::Fixed(Split::None) && job.guest.is_stock() && !measure {
        return Ok((None, Look::default()));
    }
    let layers = match Parcel::layers(&job.model_name, divided.prefix.clone(), &job.freeze).await {
        Err(error) if planning::may_stay_here(job) && keeps_layers_here(&error) => {
            return Ok((None, Look::refused(error.to_string())));
        }
        layers => layers?,
    };
    let layers = layers.or_within(job, hosts).await;
    let look = if job.split == Policy::Auto && job.guest.is_stock() {
        uploading::look(job, hosts, divided, &layers, object_bytes, feed, events).await?
    } else {
        Look::default()
    };
    Ok((Some(layers), look))
}

/// What the host has for the job, and what the guest says about it.
struct Served {
    guest: Option<Pin>,
    model: Option<Pin>,
    description: Description,
    layers: Layers,
}

impl Served {
    /// Of the stock guest it is known what it says.
    fn stock(divided: &Divided, guest: Option<Pin>, model: Option<Pin>) -> Self {
        Self {
            guest,
            model,
            description: stock_description(divided),
            layers: Layers::OnHosts,
        }
    }
}

/// Has the hosts take what the job needs there. Where they refuse it and the job can do without, it does, and `look` says why.
async fn provide(
    job: &Job,
    layers: Option<Parcel>,
    look: &mut Look,
    divided: &Divided,
    parameters: &str,
    hosts: &Hosts,
    events: &Events,
) -> Result<Served, TrainerError> {
    let served = match (&look.stay, layers) {
        (Some(stay), _) => {
            let pins = stay.serve(job, hosts, events).await;
            pins.map(|(guest, model)| Served::stock(divided, guest, model))
        }
        (None, Some(layers)) => serve(job, layers, divided, parameters, hosts, events).await,
        (None, None) => Ok(Served::stock(divided, None, None)),
    };
    match served {
        Err(error) if planning::may_stay_here(job) && keeps_layers_here(&error) => {
            look.refused = Some(error.to_string());
            Ok(Served::stock(divided, None, None))
        }
        served => served,
    }
}

/// Uploads guest and frozen layers and asks the guest what it does.
async fn serve(
    job: &Job,
    layers: Parcel,
    divided: &Divided,
    parameters: &str,
    hosts: &Hosts,
    events: &Events,
) -> Result<Served, TrainerError> {
    let (guest, _) = Parcel::guest(&job.guest).await?.send(hosts, events).await?;
    let (model, layers) = layers.send(hosts, events).await?;
    let request = DescriptionRequest {
        guest: guest.clone(),
        model: model.clone(),
        parameters: parameters.to_owned(),
    };
    let description = match hosts.describe(&request).await {
        // Of the stock guest it is known what it says, so nobody need wait for it behind others.
        Err(error) if job.guest.is_stock() && error.may_pass_later() => stock_description(divided),
        described => described?,
    };
    Ok(Served {
        guest: Some(guest),
        model: Some(model),
        description,
        layers,
    })
}

/// Whether the frozen layers are none that the hosts take or run.
fn keeps_layers_here(error: &TrainerError) -> bool {
    match error {
        TrainerError::LayersTooLarge { .. } => true,
        TrainerError::Client(ClientError::Refused { class, .. }) => {
            matches!(
                class,
                ErrorClass::Request | ErrorClass::TooLarge | ErrorClass::Guest
            )
        }
        _ => false,
    }
}

/// What the stock guest answers.
pub(crate) fn stock_description(divided: &Divided) -> Description {
    let served = |cut: &frostline_graph::Cut| ServedCut {
        name: cut.name.clone(),
        activation: Activation::Faithful,
    };
    Description {
        name: "prefix".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pixels: Pixels::Spec(divided.pixels),
        cuts: divided.network.cuts.iter().map(served).collect(),
    }
}

pub(crate) fn mean_size(dataset: &Dataset) -> u64 {
    let sizes = dataset.train.sizes().chain(dataset.validation.sizes());
    let total: u128 = sizes.map(u128::from).sum();
    let count = dataset.train.len() + dataset.validation.len();
    u64::try_from(total / (count.max(1) as u128)).unwrap_or(u64::MAX)
}

fn announce(events: &Events, chosen: &Chosen) {
    let Chosen {
        split,
        encoding,
        bytes_per_sample,
        reason,
        ..
    } = chosen.clone();
    events(Event::Split {
        split,
        encoding,
        bytes_per_sample: bytes_per_sample.round() as u64,
        reason,
    });
}
