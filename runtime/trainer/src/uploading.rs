//! What a host needs for a job, sent to it; and, before that, whether the frozen layers are worth sending.

use crate::choice::Offer;
use crate::guest::content_name;
use crate::pipeline::FeedPlan;
use crate::plan::{Chosen, Layers, Plan, Planner, Policy, Slowdown, Survey, UsableSplit};
use crate::planning::{self, Here};
use crate::replan::Watch;
use crate::setup::{Divided, blocking, stock_description};
use crate::sources::Sources;
use crate::{Event, Events, Guest, Job, TrainerError};
use bytes::Bytes;
use frostline_client::{Hosts, UploadKind, Uploaded};
use frostline_graph::{GraphError, Model};
use frostline_wire::{ModelInfo, Pin, Split};
use sha2::{Digest, Sha256};

/// Something to upload, named by its content.
#[derive(Clone)]
pub(crate) struct Parcel {
    what: UploadKind,
    name: String,
    sha256: String,
    bytes: Bytes,
    /// What the hosts have of which it is a part.
    within: Option<Pin>,
}

impl Parcel {
    pub(crate) async fn guest(guest: &Guest) -> Result<Self, TrainerError> {
        let guest = guest.clone();
        blocking(move || Ok(Self::new(UploadKind::Guest, &guest.name, guest.bytes))).await
    }

    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The layers in `model`, called `name`, which end at the cut `end`.
    ///
    /// # Errors
    /// [`TrainerError::LayersTooLarge`], [`TrainerError::Graph`].
    pub(crate) async fn layers(name: &str, model: Model, end: &str) -> Result<Self, TrainerError> {
        let (name, end) = (name.to_owned(), end.to_owned());
        blocking(move || Ok(Self::new(UploadKind::Model, &name, one_file(&model, end)?))).await
    }

    fn new(what: UploadKind, name: &str, bytes: Bytes) -> Self {
        let sha256 = hex::encode(Sha256::digest(&bytes));
        Self {
            what,
            name: content_name(name, &sha256),
            sha256,
            bytes,
            within: None,
        }
    }

    /// The same, but not sent where all hosts have the whole network, as an admin publishes it for all tenants: its first layers are
    /// these. Other guests than the stock one may look at what follows them, so they get the layers alone.
    pub(crate) async fn or_within(self, job: &Job, hosts: &Hosts) -> Self {
        if !job.guest.is_stock() {
            return self;
        }
        let whole = job.model.clone();
        // A network that is no single file is no host's.
        let hashed = blocking(move || Ok(whole.sha256()?)).await;
        let Ok(sha256) = hashed else { return self };
        let name = hosts.name_of(&sha256).await;
        let within = name.map(|name| Pin { name, sha256 });
        Self { within, ..self }
    }

    /// Sends it unless the host has it, and tells.
    ///
    /// # Errors
    /// [`TrainerError::Client`].
    pub(crate) async fn send(&self, hosts: &Hosts, events: &Events) -> Result<(Pin, Layers), TrainerError> {
        if let Some(pin) = &self.within {
            events(Event::Upload {
                what: self.what,
                name: pin.name.clone(),
                bytes: self.bytes.len() as u64,
                skipped: true,
                seconds: 0.0,
                resumed_at: None,
            });
            return Ok((pin.clone(), Layers::OnHosts));
        }
        let Uploaded {
            sha256,
            bytes,
            skipped,
            seconds,
            resumed_at,
        } = hosts.push(self.what, &self.name, self.bytes.clone()).await?;
        events(Event::Upload {
            what: self.what,
            name: self.name.clone(),
            bytes,
            skipped,
            seconds,
            resumed_at,
        });
        let layers = if skipped {
            Layers::OnHosts
        } else {
            Layers::Sent { bytes, seconds }
        };
        let name = self.name.clone();
        Ok((Pin { name, sha256 }, layers))
    }
}

/// The layers up to `end` as the one ONNX file a host takes.
///
/// # Errors
/// [`TrainerError::LayersTooLarge`], [`TrainerError::Graph`].
pub(crate) fn one_file(layers: &Model, end: String) -> Result<Bytes, TrainerError> {
    match layers.to_bytes() {
        Ok(bytes) => Ok(bytes.into()),
        Err(GraphError::TooLarge { bytes, limit }) => Err(TrainerError::LayersTooLarge { end, bytes, limit }),
        Err(error) => Err(error.into()),
    }
}

/// What was found out before the frozen layers were sent.
#[derive(Default)]
pub(crate) struct Look {
    /// Link and trainer, so that they need not be measured again.
    pub(crate) measured: Option<Here>,
    /// The plan without the frozen layers, where they are not worth sending.
    pub(crate) stay: Option<Stay>,
    /// Why no host can have them.
    pub(crate) refused: Option<String>,
}

impl Look {
    pub(crate) fn refused(why: String) -> Self {
        Self {
            refused: Some(why),
            ..Self::default()
        }
    }
}

/// A job whose frozen layers stay on the trainer.
pub(crate) struct Stay {
    planner: Planner,
    /// What the host needs to decode and preprocess with the stock guest, where that is part of the plan: the first of the layers, since
    /// a guest describes pixels for a model.
    first: Option<Parcel>,
}

impl Stay {
    /// Sends what the plan needs.
    ///
    /// # Errors
    /// [`TrainerError::Client`].
    pub(crate) async fn serve(
        &self,
        job: &Job,
        hosts: &Hosts,
        events: &Events,
    ) -> Result<(Option<Pin>, Option<Pin>), TrainerError> {
        let Some(first) = &self.first else {
            return Ok((None, None));
        };
        let (guest, _) = Parcel::guest(&job.guest).await?.send(hosts, events).await?;
        let (model, _) = first.send(hosts, events).await?;
        Ok((Some(guest), Some(model)))
    }

    /// The choice, and the planner that watches over it.
    ///
    /// # Errors
    /// [`TrainerError::Policy`].
    pub(crate) fn begin(self, events: &Events) -> Result<(Chosen, Option<Watch>), TrainerError> {
        planning::started(self.planner, events)
    }
}

/// Measures the link and this machine and says whether `layers` are worth sending, for a split that is left open and the stock guest,
/// of which it is known what it answers. Says nothing when the host has them, or something cannot be measured.
///
/// # Errors
/// [`TrainerError`].
pub(crate) async fn look(
    job: &Job,
    hosts: &Hosts,
    divided: &Divided,
    layers: &Parcel,
    object_bytes: u64,
    feed: &FeedPlan,
    events: &Events,
) -> Result<Look, TrainerError> {
    if layers.within.is_some() {
        return Ok(Look::default());
    }
    let there = hosts.each(|client| async move { client.model(&layers.name).await });
    let has = |info: &Option<ModelInfo>| info.as_ref().is_some_and(|info| info.sha256 == layers.sha256);
    if there.await?.iter().all(has) {
        return Ok(Look::default());
    }
    // What cannot be measured now is said by whoever measures next, for a plan.
    let Ok(link) = planning::probe(job, hosts, events).await else {
        return Ok(Look::default());
    };
    let description = stock_description(divided);
    let offer = Offer {
        network: &divided.network,
        freeze: &job.freeze,
        description: &description,
        object_bytes,
        encoding: job.encoding,
        flow: job.flow,
    };
    let sources = Sources {
        root: job.root.clone(),
        guest: None,
        model: None,
        parameters: String::new(),
        pixels: Some(divided.pixels),
        network: divided.network.clone(),
    };
    let possible = planning::worthwhile(job, divided, planning::fitting(job, &offer, &sources, feed)?)?;
    let trainer = planning::measure_trainer(job, hosts, divided, &possible, &layers.sha256, feed, events);
    let Ok(trainer) = trainer.await else {
        return Ok(Look::default());
    };
    let here = Here { link, trainer };
    let stay = stay(job, divided, layers, object_bytes, feed, &here, possible).await?;
    Ok(Look {
        measured: Some(here),
        stay,
        refused: None,
    })
}

/// The plan without the frozen layers, if they are not worth sending.
async fn stay(
    job: &Job,
    divided: &Divided,
    layers: &Parcel,
    object_bytes: u64,
    feed: &FeedPlan,
    here: &Here,
    possible: Vec<UsableSplit>,
) -> Result<Option<Stay>, TrainerError> {
    let workload = planning::workload(job, feed, &here.link, job.shared_cores);
    let survey = Survey {
        host: here.trainer.as_host(),
        trainer: here.trainer.clone(),
        object_bytes: object_bytes as f64,
        hosts: 1,
        neighbours: 0,
        slowdown: Slowdown::default(),
    };
    let without: Vec<UsableSplit> = possible
        .into_iter()
        .filter(|possible| !matches!(possible.split, Split::Cut(_)))
        .collect();
    let first = first(job, divided).await?;
    let mut candidates = survey.candidates(&without, &workload);
    for candidate in &mut candidates {
        if candidate.split == Split::Input {
            candidate.stages.upload_seconds = first.bytes.len() as f64 / workload.link_bytes_per_second;
        }
    }
    let Some(plan) = Plan::choose(candidates, &workload, &Policy::Auto) else {
        return Ok(None);
    };
    let Some(best) = plan.chosen() else {
        return Ok(None);
    };
    let Some(stays) = Layers::stay(layers.bytes.len() as u64, best, &workload) else {
        return Ok(None);
    };
    let split = &best.candidate.split;
    let (first, possible) = if *split == Split::Input {
        (Some(first), without)
    } else {
        let only = without.into_iter().filter(|possible| possible.split == *split);
        (None, only.collect())
    };
    let planner = Planner {
        survey,
        splits: possible,
        workload,
        link: here.link,
        policy: job.split.clone(),
        most: job.flow,
        layers: stays,
    };
    Ok(Some(Stay { planner, first }))
}

/// The layers up to the first cut: the least that is a model.
async fn first(job: &Job, divided: &Divided) -> Result<Parcel, TrainerError> {
    let cut = divided.network.cuts.first().map_or(&job.freeze, |cut| &cut.name);
    let (headed, end) = (divided.headed.clone(), cut.clone());
    let part = blocking(move || Ok(headed.slice(None, Some(&end))?)).await?;
    Parcel::layers(&job.model_name, part, cut).await
}
