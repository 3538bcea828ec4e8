//! Training of a job on its hosts.

use crate::host::{HostAccess, HostConnection};
use crate::reporter::Reporter;
use anyhow::Result;
use frostline_trainer::{Job, JobResult, TrainerError, train};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Trains the job and shows its events.
pub(crate) async fn train_with_events(
    job: Job,
    connection: &HostConnection,
    json: bool,
    stop: &CancellationToken,
) -> Result<JobResult, TrainerError> {
    let reporter = Arc::new(Reporter::new(json));
    let trained = train(job, connection.hosts(), reporter.events(), stop.clone()).await;
    reporter.finish();
    trained
}

/// Connects to the hosts of `job`, or starts an embedded host.
pub(crate) async fn connect(job: &mut Job) -> Result<HostConnection> {
    let access = HostAccess::from_flags(&job.spec.hosts)?;
    let connection = HostConnection::open(access, &job.spec.data, &job.spec.device).await?;
    job.shared_cores = connection.is_embedded();
    Ok(connection)
}
