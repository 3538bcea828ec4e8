//! Everything that comes before a job's first batch. Its phases are types: the data are listed and the network is divided (`Setup`),
//! the hosts have what the job needs there (`ProvidedSetup`), the split is chosen (`Prepared`).

mod available;
mod cached;
mod choose;
mod context;
mod data;
mod layers;
mod measure;
mod network;
mod prepared;
mod provide;
mod step_memory;

use crate::host_loads::in_whole_grants;
use crate::plan::Layers;
use crate::{Events, Flow, Job, TrainerError};
use context::Setup;
use frostline_client::Hosts;
use frostline_tensor::Tensor;
use frostline_wire::Split;
pub(crate) use prepared::Prepared;
use provide::{FrozenLayers, ProvidedSetup};
use tokio::sync::OnceCell;

/// Does everything that comes before the first batch of a checked job.
///
/// With `measure`, a split that is given is measured like one that is to be chosen.
pub(crate) async fn prepare(
    job: &Job,
    measure: bool,
    hosts: &Hosts,
    events: &Events,
) -> Result<Prepared, TrainerError> {
    let setup = Setup::new(job, measure, hosts, events).await?;
    setup.network.check_memory(job, setup.batch()).await?;
    let setup = match setup.reuse().await? {
        Ok(prepared) => {
            prepared.announce(events);
            return Ok(prepared);
        }
        Err(setup) => setup,
    };
    let provided = setup.provide_layers().await?;
    for freeze in job.spec.unfreeze.0.values() {
        provided.offer.frozen_up_to(freeze).usable()?;
    }
    let prepared = provided.choose().await?;
    prepared.announce(events);
    Ok(prepared)
}

/// What a phase came to.
pub(crate) struct TrainedPhase {
    /// Where it was divided.
    pub(crate) split: Split,
    pub(crate) weights: Vec<(String, Tensor)>,
}

/// Prepares a phase that trains more than the one `before`. Hosts keep the layers they have, and the split is chosen anew.
pub(crate) async fn unfreeze(
    job: &Job,
    before: &Prepared,
    trained: TrainedPhase,
    hosts: &Hosts,
    events: &Events,
) -> Result<Prepared, TrainerError> {
    let offer = before.offer.frozen_up_to(&job.freeze);
    let mut setup = Setup {
        job,
        measure: false,
        hosts,
        measuring: before.measuring.clone(),
        events,
        data: before.data.clone(),
        network: before.network.unfrozen(job, trained.weights).await?,
        grant: before.grant,
        flow: Flow {
            request_samples: in_whole_grants(job.spec.request_samples, before.grant),
            ..job.spec.flow()
        },
        keeps: None,
        measured: None,
        layers: OnceCell::new(),
        layers_hash: OnceCell::new(),
    };
    let prepared = if before.pushes {
        let frozen = FrozenLayers::OnHosts(Layers::default());
        ProvidedSetup { setup, offer, frozen }.choose().await?
    } else {
        let chosen = offer.fixed(&trained.split)?;
        setup.open_features(chosen.encoding, &chosen.split).await?;
        Prepared::new(setup, offer, false, (chosen, None))
    };
    prepared.announce(events);
    Ok(prepared)
}
