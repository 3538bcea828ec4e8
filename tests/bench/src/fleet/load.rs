//! Load of tenants: one batch each, or continuous batches for some time.

use super::{Fleet, Subject, Tenant};
use anyhow::{Context, Result};
use frostline_client::Source;
use frostline_client::{Fetcher, RowKind};
use frostline_tensor::Tensor;
use frostline_wire::{Encoding, ObjectInfo, Split, Terms};
use futures::future::{join_all, try_join_all};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The requests of a tenant.
#[derive(Clone)]
pub(crate) struct Job<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) subject: &'a Subject,
    pub(crate) terms: Terms,
    /// Samples of a request.
    pub(crate) request: usize,
    /// Concurrent requests.
    pub(crate) open: usize,
}

impl<'a> Job<'a> {
    /// The requests of a trainer: three concurrent ones of 16 samples.
    pub(crate) fn usual(tenant: &'a Tenant, subject: &'a Subject) -> Self {
        Self {
            tenant,
            subject,
            terms: Terms::default(),
            request: 16,
            open: 3,
        }
    }
}

/// What a tenant was served in a span.
#[derive(Debug, Clone, Default)]
pub(crate) struct Served {
    pub(crate) images: usize,
    /// Until the last of them.
    pub(crate) images_per_second: f64,
    /// The longest gap between answers, in seconds.
    pub(crate) longest_gap: f64,
}

/// When requests ended, and how many images they brought.
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
            request_samples: job.request,
        })
    }

    /// `count` photos, from the one of this number on.
    fn photos(&self, first: usize, count: usize) -> Arc<[ObjectInfo]> {
        let photos = self.samples.iter().cycle().skip(first % self.samples.len());
        photos.take(count).cloned().collect()
    }

    /// One batch of `images` for the job.
    ///
    /// # Errors
    /// The client's, or a failed row.
    pub(crate) async fn batch(&self, job: &Job<'_>, images: usize) -> Result<Tensor> {
        let fetcher = Tenant::fetcher(job.open)?;
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

    /// One batch of `images` per job, concurrently: the errors by tenant. A batch that takes longer than `patience` has failed.
    pub(crate) async fn crowd(&self, jobs: &[Job<'_>], images: usize, patience: Duration) -> Vec<String> {
        let runs = jobs.iter().map(|job| async move {
            let failed = match tokio::time::timeout(patience, self.batch(job, images)).await {
                Ok(done) => format!("{:#}", done.err()?),
                Err(_) => format!("not done after {} s", patience.as_secs()),
            };
            Some(format!("{} ({}): {failed}", job.tenant.name, job.subject.name))
        });
        join_all(runs).await.into_iter().flatten().collect()
    }

    /// What each job is served under continuous load of all, for `span`, after each job's first request was answered.
    pub(crate) async fn serve(&self, jobs: &[Job<'_>], span: Duration) -> Result<Vec<Served>> {
        self.warm(jobs).await?;
        self.load(jobs, span).await
    }

    /// Runs one request of each job, so that networks are prepared and sessions open.
    pub(super) async fn warm(&self, jobs: &[Job<'_>]) -> Result<()> {
        let warm = jobs.iter().map(|job| self.batch(job, job.request));
        let warm = try_join_all(warm).await;
        warm.context("the first request of a tenant failed")?;
        Ok(())
    }

    /// What each job is served under continuous load of all, for `span`.
    pub(super) async fn load(&self, jobs: &[Job<'_>], span: Duration) -> Result<Vec<Served>> {
        let begin = Instant::now();
        let works = jobs.iter().map(|job| async move {
            let streams = (0..job.open).map(|number| self.stream(job, number, begin + span));
            let mut ends = try_join_all(streams).await?.concat();
            ends.sort_unstable();
            anyhow::Ok(summary(begin, &ends))
        });
        try_join_all(works).await
    }

    /// Asks for request after request until `end`; a request in flight then is cancelled, unless it is the first. First requests are of all sizes:
    /// as the host serves those of a tenant alike, they would else all end at once, and nothing of it would wait for the lanes for a moment.
    async fn stream(&self, job: &Job<'_>, number: usize, end: Instant) -> Result<Ends> {
        let fetcher = Tenant::fetcher(1)?;
        let (mut ends, mut first) = (Vec::new(), number * job.request);
        let mut count = (job.request * (number + 1)).div_ceil(job.open);
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
            first += job.request * job.open;
            count = job.request;
        }
    }
}

/// The rate until the last answer, so that cancelled requests do not count as idle time.
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
