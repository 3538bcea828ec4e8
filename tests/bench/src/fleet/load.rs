//! Load from tenants: single batches or continuous requests.

use super::{Fleet, Subject, Tenant};
use anyhow::{Context, Result};
use frostline_client::Source;
use frostline_client::{Fetcher, RowKind};
use frostline_tensor::Tensor;
use frostline_wire::{Encoding, ObjectInfo, Split, Terms};
use futures::future::{join_all, try_join_all};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests of a tenant.
#[derive(Clone)]
pub(crate) struct Job<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) subject: &'a Subject,
    pub(crate) terms: Terms,
    /// Samples per request.
    pub(crate) request: usize,
    /// Concurrent requests.
    pub(crate) concurrent_requests: usize,
}

impl<'a> Job<'a> {
    /// Returns the usual load by a trainer: three concurrent requests with 16 samples each.
    pub(crate) fn usual(tenant: &'a Tenant, subject: &'a Subject) -> Self {
        Self {
            tenant,
            subject,
            terms: Terms::default(),
            request: 16,
            concurrent_requests: 3,
        }
    }
}

/// Service for a tenant within a span.
#[derive(Debug, Clone, Default)]
pub(crate) struct Served {
    pub(crate) images: usize,
    /// Rate until the last answer.
    pub(crate) images_per_second: f64,
    /// Longest gap between two answers, in seconds.
    pub(crate) longest_gap: f64,
}

/// End time and number of images for each request.
type Ends = Vec<(Instant, usize)>;

impl Fleet {
    fn source(&self, job: &Job<'_>) -> Arc<Source> {
        Arc::new(Source {
            root: self.root.clone(),
            split: Split::Cut(job.subject.cut.clone()),
            encoding: Encoding::F32,
            guest: Some(job.tenant.guest.clone()),
            model: Some(job.subject.model.clone()),
            parameters: String::new(),
            terms: job.terms,
            view: None,
            rows: RowKind::Values,
            shape: job.subject.shape.clone(),
            tensors: Vec::new(),
            request_samples: job.request,
        })
    }

    /// Returns `count` photos, beginning with number `first`.
    fn photos(&self, first: usize, count: usize) -> Arc<[ObjectInfo]> {
        let photos = self.samples.iter().cycle().skip(first % self.samples.len());
        photos.take(count).cloned().collect()
    }

    /// Extracts a batch of `images` photos for the job.
    ///
    /// # Errors
    /// Fails if the request fails, or if a sample fails.
    pub(crate) async fn batch(&self, job: &Job<'_>, images: usize) -> Result<Tensor> {
        let fetcher = Tenant::fetcher(job.concurrent_requests)?;
        self.rows(&fetcher, job, 0, images).await
    }

    async fn rows(&self, fetcher: &Fetcher, job: &Job<'_>, first: usize, count: usize) -> Result<Tensor> {
        let photos = self.photos(first, count);
        let fetched = fetcher.fetch(&job.tenant.hosts, self.source(job), photos).await?;
        match fetched.bad.into_iter().next() {
            None => Ok(fetched.rows),
            Some((_, error)) => Err(error.into()),
        }
    }

    /// Extracts a batch of `images` photos for each job concurrently. Returns the errors with the tenant's
    /// name. Batches that exceed the timeout are errors.
    pub(crate) async fn crowd(&self, jobs: &[Job<'_>], images: usize, timeout: Duration) -> Vec<String> {
        let runs = jobs.iter().map(|job| async move {
            let failed = match tokio::time::timeout(timeout, self.batch(job, images)).await {
                Ok(done) => format!("{:#}", done.err()?),
                Err(_) => format!("not done after {} s", timeout.as_secs()),
            };
            Some(format!("{} ({}): {failed}", job.tenant.name, job.subject.name))
        });
        join_all(runs).await.into_iter().flatten().collect()
    }

    /// Like [`Fleet::load`], after a warm-up request for each job.
    pub(crate) async fn serve(&self, jobs: &[Job<'_>], span: Duration) -> Result<Vec<Served>> {
        self.warm(jobs).await?;
        self.load(jobs, span).await
    }

    /// Runs a request for each job to prepare networks and open sessions.
    pub(super) async fn warm(&self, jobs: &[Job<'_>]) -> Result<()> {
        let warm = jobs.iter().map(|job| self.batch(job, job.request));
        let warm = try_join_all(warm).await;
        warm.context("the warm-up request failed")?;
        Ok(())
    }

    /// Measures the service for each job under continuous load from all jobs, for `span`.
    pub(super) async fn load(&self, jobs: &[Job<'_>], span: Duration) -> Result<Vec<Served>> {
        let begin = Instant::now();
        let works = jobs.iter().map(|job| async move {
            let streams = (0..job.concurrent_requests).map(|number| self.stream(job, number, begin + span));
            let mut ends = try_join_all(streams).await?.concat();
            ends.sort_unstable();
            anyhow::Ok(summary(begin, &ends))
        });
        try_join_all(works).await
    }

    /// Sends requests until `end`. Requests in flight are then canceled, except for the first request. First
    /// requests of a job have different sizes because hosts serve the tenant's requests evenly: equal sizes
    /// would end at the same time and leave no queued work for a moment.
    async fn stream(&self, job: &Job<'_>, number: usize, end: Instant) -> Result<Ends> {
        let fetcher = Tenant::fetcher(1)?;
        let (mut ends, mut first) = (Vec::new(), number * job.request);
        let mut count = (job.request * (number + 1)).div_ceil(job.concurrent_requests);
        loop {
            let rows = self.rows(&fetcher, job, first, count);
            if ends.is_empty() {
                drop(rows.await?);
            } else if let Ok(rows) = tokio::time::timeout_at(end.into(), rows).await {
                drop(rows?);
            } else {
                return Ok(ends);
            }
            ends.push((Instant::now(), count));
            first += job.request * job.concurrent_requests;
            count = job.request;
        }
    }
}

/// Rate until the last answer. Canceled requests do not count as idle time.
fn summary(begin: Instant, ends: &Ends) -> Served {
    let images: usize = ends.iter().map(|(_, images)| images).sum();
    let (mut before, mut longest) = (begin, Duration::ZERO);
    for (at, _) in ends {
        longest = longest.max(at.duration_since(before));
        before = *at;
    }
    Served {
        images,
        images_per_second: images as f64 / before.duration_since(begin).as_secs_f64().max(1e-9),
        longest_gap: longest.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_until_the_last_answer_and_gaps_from_the_beginning() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let served = summary(begin, &vec![(after(3), 8), (after(4), 8)]);
        assert_eq!((served.images_per_second, served.longest_gap), (4.0, 3.0));
        assert_eq!(summary(begin, &Vec::new()).longest_gap, 0.0);
    }
}
