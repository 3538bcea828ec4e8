use crate::choice::Offer;
use crate::compute::{Dedicated, Forward, correct};
use crate::event::notices;
use crate::notes::Input;
use crate::pipeline::{BadSamples, Feed, FeedPlan, Flow, Part, Steering};
use crate::run::fetcher;
use crate::setup::{blocking, session_options};
use crate::sources::Sources;
use crate::uploading::Parcel;
use crate::{Evaluation, EvaluationJob, Event, Events, Guest, TrainerError, notes};
use frostline_client::{Dataset, DatasetError, Hosts, LeftOut, Listing, SampleFiles, Samples, Source, Waits};
use frostline_engine::Interrupt;
use frostline_graph::{Model, Network};
use frostline_wire::{DescriptionRequest, Encoding, Split};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Measures a whole model on the objects of a data root: they travel as they are, and everything is computed here. With a guest, that
/// makes the rows as it did for training, and only what follows them is computed here.
///
/// # Errors
/// [`TrainerError`]; [`TrainerError::GuestNeeded`] for a model that was trained on rows that only its guest can make.
pub async fn evaluate(
    job: EvaluationJob,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<Evaluation, TrainerError> {
    let hosts = hosts.into().for_job(notices(&events), Waits::default());
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(TrainerError::Cancelled),
        evaluation = run(&job, &hosts, &events) => evaluation,
    }
}

async fn run(job: &EvaluationJob, hosts: &Hosts, events: &Events) -> Result<Evaluation, TrainerError> {
    if job.batch == 0 {
        let value = "0".to_owned();
        return Err(TrainerError::Setting {
            what: "the batch size",
            value,
            must: "it must be at least 1",
        });
    }
    let model = job.model.clone();
    let network = blocking(move || Ok(model.network()?)).await?;
    let (source, model) = match &job.guest {
        None => objects(job, &network)?,
        Some(guest) => rows_of(guest, job, &network, hosts, events).await?,
    };
    let listing = hosts.listing(&job.root, job.layout).await?;
    let (for_samples, of) = (job.clone(), network.clone());
    let (plan, left_out) = blocking(move || arrange(&for_samples, &of, listing)).await?;
    if left_out.objects > 0 {
        events(Event::LeftOut(left_out));
    }
    let interrupt = Interrupt::new();
    let (batch, options, guard) = (
        job.batch,
        session_options(job.device, job.threads),
        interrupt.clone(),
    );
    let forward = blocking(move || Forward::open(&model, batch, &options, &guard, "evaluating")).await?;
    let forward = Dedicated::start(forward, interrupt)?;
    let bad = Arc::new(BadSamples::new(job.on_bad_sample, Arc::clone(events)));
    let steering = Arc::new(Steering::towards(source));
    let fetcher = fetcher(OPEN_REQUESTS, job.threads)?;
    let mut feed = Feed::start(plan.clone(), fetcher, steering, hosts.clone(), Arc::clone(&bad))?;
    let (mut right, mut samples) = (0, 0);
    for _ in 0..plan.batches(Part::Validation) {
        let batch = &mut feed.next().await?;
        let Some(rows) = batch.rows.take() else { continue };
        let labels = std::mem::take(&mut batch.labels);
        samples += labels.len();
        right += forward
            .run(move |forward| Ok(correct(&forward.run(&rows)?, &labels)))
            .await?;
    }
    if samples == 0 {
        return Err(bad.nothing_left(Part::Validation, plan.validation.len()));
    }
    Ok(Evaluation {
        accuracy: right as f64 / samples as f64,
        samples,
    })
}

/// As a job's defaults, for the same reasons.
const MEMORY_BYTES: u64 = 2 << 30;
const REQUEST_SAMPLES: usize = 32;
const OPEN_REQUESTS: usize = 8;
const AHEAD: usize = 2;

fn arrange(
    job: &EvaluationJob,
    network: &Network,
    listing: Listing,
) -> Result<(FeedPlan, LeftOut), TrainerError> {
    let (samples, left_out) = samples(job, network, listing)?;
    let plan = FeedPlan {
        ahead: AHEAD,
        memory_bytes: MEMORY_BYTES,
        ..FeedPlan::new(Arc::default(), Arc::new(samples), job.batch)
    };
    Ok((plan, left_out))
}

/// Samples labelled by the classes the model carries, else by the sorted class folders, if they are as many as its outputs.
fn samples(
    job: &EvaluationJob,
    network: &Network,
    listing: Listing,
) -> Result<(Samples, LeftOut), TrainerError> {
    let files = job.guest.as_ref().map_or(SampleFiles::Images, Guest::takes);
    let classes = match notes::classes(&job.model) {
        Some(classes) => classes,
        None => Dataset::class_folders(&listing, files),
    };
    let outputs = network.output.shape.dims().iter().product::<usize>();
    if classes.len() != outputs {
        return Err(TrainerError::Classes {
            classes: classes.len(),
            outputs,
        });
    }
    Dataset::to_evaluate(&job.root, listing, &classes, files).map_err(|error| match &error {
        DatasetError::UnknownClass { class, .. } => TrainerError::UnknownClass {
            known: knows(&classes, class),
            source: error,
        },
        _ => error.into(),
    })
}

/// What a model knows, for somebody who has `class`.
fn knows(classes: &[String], class: &str) -> String {
    const SHORT: usize = 12;
    let similar = frostline_graph::similar(class, classes.iter().map(String::as_str));
    let meant = match similar.as_slice() {
        [] => String::new(),
        similar => format!("did you mean '{}'? ", similar.join("', '")),
    };
    if classes.len() <= SHORT {
        return format!("{meant}it knows {}", classes.join(", "));
    }
    format!("{meant}it knows {} others", classes.len())
}

/// The objects as they are, for the whole model.
fn objects(job: &EvaluationJob, network: &Network) -> Result<(Source, Model), TrainerError> {
    let sources = Sources {
        root: job.root.clone(),
        guest: None,
        model: None,
        parameters: String::new(),
        pixels: Some(notes::pixels(&job.model, network, job.pixels, false)?),
        network: network.clone(),
    };
    let source = sources.at(&Split::None, Encoding::F32, REQUEST_SAMPLES)?;
    Ok((source, job.model.clone()))
}

/// What the guest makes of the objects where the network was divided for training, for the layers after that.
async fn rows_of(
    guest: &Guest,
    job: &EvaluationJob,
    network: &Network,
    hosts: &Hosts,
    events: &Events,
) -> Result<(Source, Model), TrainerError> {
    let noted = match notes::input(&job.model)? {
        Some(Input::Guest(noted)) => Some(noted),
        Some(Input::Pixels(_)) | None => None,
    };
    let pixels = notes::pixels(&job.model, network, job.pixels, true)?;
    let told = noted.as_ref().map(|noted| noted.parameters.clone());
    let parameters = match guest.parameters.clone().or(told) {
        Some(parameters) => parameters,
        None => notes::recipe(&pixels)?,
    };
    let parcel = Parcel::guest(guest).await?;
    if let Some(difference) = noted
        .as_ref()
        .and_then(|noted| noted.differs(parcel.sha256(), &parameters))
    {
        events(Event::Warning { message: difference });
    }
    let (freeze, split) = match noted {
        Some(noted) => (noted.freeze, noted.split),
        None => {
            let cut = network.cuts.iter().rev().find(|cut| cut.before_head);
            let cut = cut.ok_or_else(|| TrainerError::Pixels {
                reason: "no cut of the network lies before its classifier, so no guest can serve it"
                    .to_owned(),
            })?;
            (cut.name.clone(), Split::Cut(cut.name.clone()))
        }
    };
    let (whole, end) = (job.model.clone(), freeze.clone());
    let frozen = blocking(move || Ok(whole.slice(None, Some(&end))?)).await?;
    let layers = Parcel::layers(&job.model_name, frozen, &freeze).await?;
    let (guest, _) = parcel.send(hosts, events).await?;
    let (model, _) = layers.send(hosts, events).await?;
    let description = hosts
        .describe(&DescriptionRequest {
            guest: guest.clone(),
            model: model.clone(),
            parameters: parameters.clone(),
        })
        .await?;
    let offer = Offer {
        network,
        freeze: &freeze,
        description: &description,
        object_bytes: 0,
        encoding: Some(Encoding::F32),
        flow: Flow {
            request_samples: REQUEST_SAMPLES,
            window: OPEN_REQUESTS,
            ahead: AHEAD,
        },
    };
    offer.fixed(&split)?;
    let sources = Sources {
        root: job.root.clone(),
        guest: Some(guest),
        model: Some(model),
        parameters,
        pixels: None,
        network: network.clone(),
    };
    let source = sources.at(&split, Encoding::F32, REQUEST_SAMPLES)?;
    let (whole, rest) = (job.model.clone(), split);
    let rest = blocking(move || match &rest {
        Split::Cut(name) => Ok(whole.slice(Some(name), None)?),
        Split::None | Split::Input => Ok(whole),
    });
    Ok((source, rest.await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_said_with_what_the_model_knows() {
        let classes = ["cat", "dog"].map(str::to_owned);
        assert_eq!(knows(&classes, "Cat"), "did you mean 'cat'? it knows cat, dog");
        assert_eq!(knows(&classes, "zebra"), "it knows cat, dog");
        let many: Vec<String> = (0..20).map(|number| format!("class {number}")).collect();
        assert_eq!(knows(&many, "zebra"), "it knows 20 others");
    }
}
