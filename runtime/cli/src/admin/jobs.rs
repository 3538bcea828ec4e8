//! `frostline admin job` and `frostline admin top --jobs`, which show and cancel the jobs on all hosts of a state.

use super::activity::refresh;
use super::console::{confirm, done};
use crate::arguments::JobAdmin;
use crate::output::{print_json, print_table};
use anyhow::Result;
use frostline_client::AdminClient;
use frostline_job::utc;
use frostline_wire::{JobDetail, JobInfo, JobStage};
use std::collections::HashMap;

/// Number of digits shown for a job id in tables. This is enough to distinguish jobs.
const SHORT: usize = 12;

pub(super) async fn run(client: &AdminClient, command: JobAdmin, json: bool) -> Result<()> {
    match command {
        JobAdmin::Show { id } => {
            let detail: JobDetail = client.get(&path(&id), &[]).await?;
            if json {
                return Ok(print_json(&detail)?);
            }
            show(&detail)
        }
        JobAdmin::Cancel { id, yes } => {
            let JobDetail { job, .. } = client.get(&path(&id), &[]).await?;
            let question = format!("Cancel the job {} of {} on all hosts?", job.id, job.tenant);
            confirm(yes, &question)?;
            client.delete(&path(&job.id)).await?;
            done(&job.id, "cancelled", json)
        }
    }
}

fn path(id: &str) -> String {
    format!("/v1/jobs/{id}")
}

/// Shows the jobs with rates since the previous refresh until it is interrupted.
pub(super) async fn top(client: &AdminClient, once: bool, json: bool) -> Result<()> {
    refresh(client, "/v1/jobs", once, json, table).await
}

fn table(before: &[JobInfo], jobs: &[JobInfo], seconds: f64) -> Result<()> {
    let before = before.iter().map(|job| ((&job.tenant, &job.id), job.images));
    let before: HashMap<_, u64> = before.collect();
    let rows = jobs.iter().map(|job| {
        let earlier = before.get(&(&job.tenant, &job.id)).copied();
        let images = job.images - earlier.unwrap_or(0).min(job.images);
        [
            job.tenant.clone(),
            job.id.chars().take(SHORT).collect(),
            job.split.clone(),
            job.running.to_string(),
            job.queued.to_string(),
            format!("{:.1}", images as f64 / seconds),
            job.images.to_string(),
            if job.cancelled {
                "cancelled".to_owned()
            } else {
                job.seconds.summary()
            },
        ]
    });
    let columns = "TENANT|JOB|SPLIT|RUNNING>|QUEUED>|IMAGES/S>|IMAGES>|SLOWEST STAGES";
    print_table(columns, rows)
}

fn show(detail: &JobDetail) -> Result<()> {
    let job = &detail.job;
    let model = job.model.as_ref().map(|model| format!(" of {model}"));
    let state = match (job.cancelled, job.running + job.queued) {
        (true, _) => "cancelled",
        (false, 0) => "idle",
        (false, _) => "active",
    };
    say!("job {} of tenant {}: {state}", job.id, job.tenant);
    say!(
        "split {}{}, since {}, last request {}",
        job.split,
        model.unwrap_or_default(),
        utc(job.started_at),
        utc(job.active_at)
    );
    if !job.hosts.is_empty() {
        say!("on {}", job.hosts.join(", "));
    }
    say!(
        "{} images, {} extractions ended, {} running, {} waiting",
        job.images,
        job.extractions,
        job.running,
        job.queued
    );
    say!("{}", detail.summary());
    let rows = JobStage::all().map(|stage| {
        let seconds = job.seconds.seconds_in(stage);
        let each = seconds / job.images.max(1) as f64 * 1e3;
        [
            stage.words().to_owned(),
            format!("{seconds:.1} s"),
            format!("{each:.1} ms"),
        ]
    });
    print_table("STAGE|ALL IMAGES>|AN IMAGE>", rows)
}
