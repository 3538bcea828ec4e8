//! Prepares a job for training. `Setup` lists the data and divides the network, `ProvidedSetup` adds the
//! uploaded guest and layers, and `Prepared` adds the split.

mod available;
mod cached;
mod choose;
mod context;
mod data;
mod earlier_training;
mod layers;
mod measure;
mod network;
mod prepared;
mod provide;
mod step_memory;
mod trained_images;

use crate::{Events, Job, TrainerError};
pub(crate) use available::available_memory;
use context::{Setup, flow};
pub(crate) use earlier_training::trained_after;
use frostline_client::Hosts;
use frostline_plan::LayersLocation;
use frostline_tensor::Tensor;
use frostline_wire::Split;
pub(crate) use network::DividedNetwork;
pub(crate) use prepared::Prepared;
use provide::{FrozenLayers, ProvidedSetup};
use tokio::sync::OnceCell;
pub(crate) use trained_images::TrainedImages;

/// Prepares a checked job for training.
///
/// With `measure`, a fixed split is measured like a planned one.
pub(crate) async fn prepare(
    job: &Job,
    measure: bool,
    hosts: &Hosts,
    events: &Events,
) -> Result<Prepared, TrainerError> {
    let setup = Setup::new(job, measure, hosts, events).await?;
    setup.network.check_memory(job, setup.batch()).await?;
    let prepared = match setup.reuse().await? {
        Ok(prepared) => prepared,
        Err(setup) => {
            let provided = setup.provide_layers().await?;
            for freeze in job.spec.unfreeze.0.values() {
                provided.offer.frozen_up_to(freeze).usable()?;
            }
            provided.choose().await?
        }
    };
    prepared.announce(events);
    prepared.report_precision(job, events);
    Ok(prepared)
}

/// Prepares a phase that trains more layers than the phase `before`, which ended with these weights and at the
/// split `last`. Hosts reuse the layers from earlier
/// uploads. If the hosts have the frozen layers, the split is chosen again; otherwise it stays the same.
pub(crate) async fn unfreeze(
    job: &Job,
    before: &Prepared,
    last: &Split,
    weights: Vec<(String, Tensor)>,
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
        network: before.network.unfrozen(job, weights).await?,
        grant: before.grant,
        flow: flow(job, before.grant),
        planned_reuse: None,
        early_measurements: None,
        layers: OnceCell::new(),
        layers_hash: OnceCell::new(),
    };
    let prepared = if before.layers_on_hosts {
        setup.expect_reuse().await?;
        let frozen = FrozenLayers::OnHosts(LayersLocation::default());
        ProvidedSetup { setup, offer, frozen }.choose().await?
    } else {
        let chosen = offer.fixed(last)?;
        setup.open_features(chosen.encoding, &chosen.split).await?;
        Prepared::new(setup, offer, false, (chosen, None))
    };
    prepared.announce(events);
    Ok(prepared)
}
