//! Jobs on this host: groups extractions by job, measures the time of images in every stage, and lets admins
//! cancel a job.

use crate::refusal::Refusal;
use frostline_profile::now;
use frostline_tensor::{BoxFuture, GraphExecutor, OpError, Stage, Tensor};
use frostline_wire::{JobInfo, JobStage, StageSeconds};
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strum::EnumCount;
use tokio_util::sync::CancellationToken;

/// Maximum number of idle jobs per tenant. If it is reached, the job that was active least recently is
/// removed.
const JOBS: usize = 64;

/// Retention time of idle jobs in seconds. A cancelled job is refused for this time, unless it is removed
/// earlier because of [`JOBS`].
const REMEMBERED: u64 = 24 * 3600;

/// Recent jobs of all tenants.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<JobTable>);

#[derive(Default)]
struct JobTable {
    jobs: HashMap<JobKey, Arc<Job>>,
    /// Clocks of active extractions, by extraction id.
    clocks: HashMap<String, Arc<StageClock>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct JobKey {
    tenant: String,
    id: String,
}

struct Job {
    key: JobKey,
    started_at: u64,
    cancel: CancellationToken,
    seconds: StageSums,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    split: String,
    model: Option<String>,
    active_at: u64,
    queued: u64,
    running: u64,
    extractions: u64,
    images: u64,
}

/// Time of images by stage in nanoseconds. The time of [`JobStage::Run`] includes the wait for a lane.
#[derive(Default)]
struct StageSums([AtomicU64; JobStage::COUNT]);

/// Measures the time of images by stage, for the extraction and for the job.
pub(crate) struct StageClock {
    sums: StageSums,
    windows: Mutex<[Option<Window>; JobStage::COUNT]>,
    job: Arc<Job>,
}

/// The period during which a stage was processing images of the extraction.
#[derive(Clone, Copy)]
struct Window {
    begin: Instant,
    /// When the first image left the stage.
    first_end: Instant,
    end: Instant,
}

/// Describes a new extraction.
pub(crate) struct NewExtraction {
    pub(crate) tenant: String,
    /// Id of the trace, which is used as job id. Without a trace, the extraction is a separate job.
    pub(crate) trace: Option<String>,
    /// Id of the extraction.
    pub(crate) extraction: String,
    pub(crate) split: String,
    pub(crate) model: Option<String>,
}

/// An extraction that counts as active in the job until this is dropped.
pub(crate) struct JobExtraction {
    jobs: Arc<Jobs>,
    extraction: String,
    clock: Arc<StageClock>,
    entered: bool,
}

impl Jobs {
    /// Adds an extraction that waits for a permit.
    ///
    /// # Errors
    /// Returns [`Refusal::Cancelled`] if an admin cancelled the job.
    pub(crate) fn enqueue(self: &Arc<Self>, described: NewExtraction) -> Result<JobExtraction, Refusal> {
        let NewExtraction {
            tenant,
            trace,
            extraction,
            split,
            model,
        } = described;
        let id = trace.unwrap_or_else(|| extraction.clone());
        let mut known = self.0.lock();
        let job = known.job(JobKey { tenant, id }, now());
        if job.cancel.is_cancelled() {
            return Err(Refusal::Cancelled {
                id: job.key.id.clone(),
            });
        }
        let mut progress = job.progress.lock();
        progress.queued += 1;
        progress.active_at = now();
        (progress.split, progress.model) = (split, model);
        drop(progress);
        let clock = Arc::new(StageClock {
            sums: StageSums::default(),
            windows: Mutex::default(),
            job,
        });
        known.clocks.insert(extraction.clone(), Arc::clone(&clock));
        drop(known);
        Ok(JobExtraction {
            jobs: Arc::clone(self),
            extraction,
            clock,
            entered: false,
        })
    }

    /// Returns the clock of an active extraction.
    pub(crate) fn clock(&self, extraction: &str) -> Option<Arc<StageClock>> {
        self.0.lock().clocks.get(extraction).cloned()
    }

    /// Lists all jobs, the most recently active first.
    pub(crate) fn list(&self) -> Vec<JobInfo> {
        let mut jobs: Vec<JobInfo> = self.0.lock().jobs.values().map(|job| job.info()).collect();
        jobs.sort_by(|left, right| (right.active_at, &right.id).cmp(&(left.active_at, &left.id)));
        jobs
    }

    /// Returns the job whose id starts with `id`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such job or more than one.
    pub(crate) fn find(&self, id: &str) -> Result<JobInfo, Refusal> {
        Ok(self.find_job(id)?.info())
    }

    /// Cancels the job whose id starts with `id`. Later extractions of this job are refused.
    ///
    /// # Errors
    /// Returns the same errors as [`Jobs::find`].
    pub(crate) fn cancel(&self, id: &str) -> Result<JobInfo, Refusal> {
        let job = self.find_job(id)?;
        job.cancel.cancel();
        Ok(job.info())
    }

    fn find_job(&self, id: &str) -> Result<Arc<Job>, Refusal> {
        let known = self.0.lock();
        let mut found = known.jobs.values().filter(|job| job.key.id.starts_with(id));
        match (found.next(), found.next()) {
            (Some(job), None) => Ok(Arc::clone(job)),
            (None, _) => Err(Refusal::not_found(format!(
                "no job {id:?} was seen by this host in the last day; use the id of a job of the last day"
            ))),
            (Some(_), Some(_)) => Err(Refusal::request(format!(
                "ambiguous job id {id:?}: more than one job starts with it; use a longer prefix"
            ))),
        }
    }
}

impl JobTable {
    /// Returns the job with this key, creating it if necessary.
    fn job(&mut self, key: JobKey, now: u64) -> Arc<Job> {
        if let Some(job) = self.jobs.get(&key) {
            return Arc::clone(job);
        }
        let idle_since = |job: &Job| job.progress.lock().idle_since();
        self.jobs
            .retain(|_, job| idle_since(job).is_none_or(|since| since.saturating_add(REMEMBERED) > now));
        let own = self.jobs.values().filter(|job| job.key.tenant == key.tenant);
        if own.clone().count() >= JOBS {
            let idle = own.filter_map(|job| Some((idle_since(job)?, job.key.clone())));
            let oldest = idle.min_by_key(|(since, _)| *since);
            if let Some((_, oldest)) = oldest {
                self.jobs.remove(&oldest);
            }
        }
        let job = Arc::new(Job {
            key: key.clone(),
            started_at: now,
            cancel: CancellationToken::new(),
            seconds: StageSums::default(),
            progress: Mutex::default(),
        });
        self.jobs.insert(key, Arc::clone(&job));
        job
    }
}

impl Progress {
    /// Returns the time (seconds since 1970) when the job became idle, or `None` if extractions are queued or
    /// running.
    fn idle_since(&self) -> Option<u64> {
        (self.queued + self.running == 0).then_some(self.active_at)
    }
}

impl Job {
    fn info(&self) -> JobInfo {
        let progress = self.progress.lock();
        JobInfo {
            id: self.key.id.clone(),
            tenant: self.key.tenant.clone(),
            split: progress.split.clone(),
            model: progress.model.clone(),
            started_at: self.started_at,
            active_at: progress.active_at,
            queued: progress.queued,
            running: progress.running,
            extractions: progress.extractions,
            images: progress.images,
            cancelled: self.cancel.is_cancelled(),
            seconds: self.seconds.seconds(),
        }
    }
}

impl StageSums {
    fn add(&self, stage: JobStage, nanos: u64) {
        if let Some(sum) = self.0.get(stage as usize) {
            sum.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    fn seconds(&self) -> StageSeconds {
        let mut seconds = StageSeconds::default();
        for (stage, sum) in JobStage::all().zip(&self.0) {
            *seconds.seconds_in_mut(stage) = Duration::from_nanos(sum.load(Ordering::Relaxed)).as_secs_f64();
        }
        seconds.run = (seconds.run - seconds.lane).max(0.0);
        seconds
    }
}

impl StageClock {
    /// Adds `time` in a stage for each of the `images`. For [`JobStage::Run`] the time starts when a batch is
    /// submitted to the lanes.
    pub(crate) fn add(&self, stage: JobStage, time: Duration, images: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let nanos = nanos.saturating_mul(images);
        self.sums.add(stage, nanos);
        self.job.seconds.add(stage, nanos);
        let end = Instant::now();
        let begin = end.checked_sub(time).unwrap_or(end);
        if let Some(window) = self.windows.lock().get_mut(stage as usize) {
            let known = window.get_or_insert(Window {
                begin,
                first_end: end,
                end,
            });
            (known.begin, known.end) = (known.begin.min(begin), known.end.max(end));
        }
    }

    /// Emits a tracing span for each stage as child of the request's span.
    fn trace(&self) {
        let (windows, seconds) = (*self.windows.lock(), self.seconds());
        let window = |stage: JobStage| windows.get(stage as usize).copied().flatten();
        for stage in JobStage::all() {
            let Some(Window { mut begin, end, .. }) = window(stage) else {
                continue;
            };
            if let (JobStage::Run, Some(lane)) = (stage, window(JobStage::Lane)) {
                begin = begin.max(lane.first_end).min(end);
            }
            drop(tracing::debug_span!(
                "stage",
                stage = <&str>::from(stage),
                begin_micros_ago = begin.elapsed().as_micros() as u64,
                end_micros_ago = end.elapsed().as_micros() as u64,
                seconds = seconds.seconds_in(stage),
            ));
        }
    }

    pub(crate) fn job(&self) -> &str {
        &self.job.key.id
    }

    /// Adds answered images to the job.
    pub(crate) fn count_images(&self, images: u64) {
        self.job.progress.lock().images += images;
    }

    /// Returns the seconds of each stage of this extraction, summed over its images.
    pub(crate) fn seconds(&self) -> StageSeconds {
        self.sums.seconds()
    }

    /// Waits until an admin cancels the job.
    pub(crate) async fn cancelled(&self) -> Refusal {
        self.job.cancel.cancelled().await;
        Refusal::Cancelled {
            id: self.job.key.id.clone(),
        }
    }
}

impl JobExtraction {
    pub(crate) fn clock(&self) -> &Arc<StageClock> {
        &self.clock
    }

    /// Marks the extraction as running, after each of its `images` waited for the permit for `waited`.
    pub(crate) fn enter(&mut self, waited: Duration, images: usize) {
        self.clock.add(JobStage::Place, waited, images as u64);
        let mut progress = self.clock.job.progress.lock();
        progress.queued -= 1;
        progress.running += 1;
        self.entered = true;
    }
}

impl Drop for JobExtraction {
    fn drop(&mut self) {
        self.clock.trace();
        self.jobs.0.lock().clocks.remove(&self.extraction);
        let mut progress = self.clock.job.progress.lock();
        progress.active_at = now();
        if self.entered {
            progress.running -= 1;
            progress.extractions += 1;
        } else {
            progress.queued -= 1;
        }
    }
}

/// Lanes that report the time of each submission to a clock.
pub(crate) struct TimedLanes<E> {
    pub(crate) lanes: E,
    pub(crate) clock: Arc<StageClock>,
}

impl<E: GraphExecutor> GraphExecutor for TimedLanes<E> {
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
        let (started, clock) = (Instant::now(), Arc::clone(&self.clock));
        let rows = batch.rows().unwrap_or(0) as u64;
        let running = self.lanes.submit(stage, batch);
        async move {
            let output = running.await;
            clock.add(JobStage::Run, started.elapsed(), rows);
            output
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(
        jobs: &Arc<Jobs>,
        tenant: &str,
        trace: &str,
        extraction: &str,
    ) -> Result<JobExtraction, Refusal> {
        jobs.enqueue(NewExtraction {
            tenant: tenant.to_owned(),
            trace: (!trace.is_empty()).then(|| trace.to_owned()),
            extraction: extraction.to_owned(),
            split: "layer2".to_owned(),
            model: None,
        })
    }

    #[test]
    fn extractions_of_a_trace_are_one_job_of_their_tenant() {
        let jobs = Arc::<Jobs>::default();
        let mut one = begin(&jobs, "acme", "4bf9", "a").unwrap();
        one.enter(Duration::from_secs(2), 3);
        let two = begin(&jobs, "acme", "4bf9", "b").unwrap();
        let _other = begin(&jobs, "beta", "", "c").unwrap();
        assert_eq!(jobs.list().len(), 2);
        let job = jobs.find("4b").unwrap();
        assert_eq!((job.queued, job.running, job.extractions), (1, 1, 0));
        assert_eq!(job.seconds.place, 6.0);
        assert_eq!(jobs.find("c").unwrap().tenant, "beta");
        jobs.clock("b")
            .unwrap()
            .add(JobStage::Decode, Duration::from_secs(1), 1);
        assert_eq!(
            (one.clock().seconds().decode, two.clock().seconds().decode),
            (0.0, 1.0)
        );
        drop((one, two));
        let job = jobs.find("4bf9").unwrap();
        assert_eq!((job.queued, job.running, job.extractions), (0, 0, 1));
        assert_eq!(job.seconds.decode, 1.0);
        assert!(jobs.clock("b").is_none());
    }

    #[test]
    fn time_at_the_lanes_is_waiting_or_running() {
        let jobs = Arc::<Jobs>::default();
        let extraction = begin(&jobs, "acme", "t", "a").unwrap();
        let clock = extraction.clock();
        clock.add(JobStage::Lane, Duration::from_secs(3), 2);
        assert_eq!(clock.seconds().run, 0.0, "the batch is still running");
        clock.add(JobStage::Run, Duration::from_secs(4), 2);
        assert_eq!((clock.seconds().lane, clock.seconds().run), (6.0, 2.0));
    }

    #[test]
    fn a_cancelled_job_ends_and_is_refused_whatever_others_do() {
        let jobs = Arc::<Jobs>::default();
        let running = begin(&jobs, "acme", "t1", "a").unwrap();
        let _other = begin(&jobs, "beta", "t2", "b").unwrap();
        assert!(
            matches!(jobs.find("t"), Err(Refusal::Request { .. })),
            "ambiguous prefix"
        );
        assert!(jobs.cancel("t1").unwrap().cancelled);
        assert!(running.clock().cancelled().now_or_never().is_some());
        assert!(matches!(
            begin(&jobs, "acme", "t1", "c"),
            Err(Refusal::Cancelled { .. })
        ));
        assert!(
            begin(&jobs, "beta", "t1", "d").is_ok(),
            "other tenants can use the same id"
        );
        assert!(matches!(jobs.cancel("t9"), Err(Refusal::NotFound { .. })));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_runs_is_kept() {
        let jobs = Arc::<Jobs>::default();
        let running = begin(&jobs, "acme", "running", "r").unwrap();
        for index in 0..3 * JOBS {
            begin(&jobs, "acme", &format!("trace-{index}"), "x").unwrap();
        }
        begin(&jobs, "beta", "one", "y").unwrap();
        assert_eq!(jobs.list().len(), JOBS + 1);
        assert!(jobs.find("running").is_ok());
        drop(running);
        let mut known = jobs.0.lock();
        let key = JobKey {
            tenant: "acme".to_owned(),
            id: "later".to_owned(),
        };
        known.job(key, now() + REMEMBERED + 1);
        assert_eq!(known.jobs.len(), 1, "a day later all is forgotten");
    }
}
