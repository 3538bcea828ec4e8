//! Everything that comes before a job's first batch. Its phases are types: the data are listed and the network is divided (`Setup`),
//! the hosts have what the job needs there (`Provided`), the split is chosen (`Prepared`).

mod choose;
mod context;
mod data;
mod layers;
mod measure;
mod network;
mod prepared;
mod provide;

use crate::{Events, Job, TrainerError};
use context::Setup;
use frostline_client::Hosts;
use prepared::Prepared;

/// Does everything that comes before the first batch of a checked job.
///
/// With `measure`, a split that is given is measured like one that is to be chosen.
pub(crate) async fn prepare(
    job: &Job,
    measure: bool,
    hosts: &Hosts,
    events: &Events,
) -> Result<Prepared, TrainerError> {
    let setup = Setup::begin(job, measure, hosts, events).await?;
    let provided = setup.provide().await?;
    let prepared = provided.choose().await?;
    prepared.announce(events);
    Ok(prepared)
}
