//! Jobs: which extractions belong together, where the time of their images goes, and the end of those that an admin cancels.

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

/// Jobs of a tenant that are remembered; beyond, those whose last extraction ended the longest ago go.
const JOBS: usize = 64;

/// How long a job is remembered that does nothing, in seconds; so long is a cancelled one refused.
const REMEMBERED: u64 = 24 * 3600;

/// All that a host remembers.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<Known>);

#[derive(Default)]
struct Known {
    jobs: HashMap<JobKey, Arc<Job>>,
    /// Of extractions that run, by their ids.
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

/// Time of images by stage, in nanoseconds. That of [`JobStage::Run`] includes the wait for the lane.
#[derive(Default)]
struct StageSums([AtomicU64; JobStage::COUNT]);

/// Where the time of an extraction's images goes; its job's as well.
pub(crate) struct StageClock {
    own: StageSums,
    windows: Mutex<[Option<Window>; JobStage::COUNT]>,
    job: Arc<Job>,
}

/// From when to when images of an extraction were in a stage.
#[derive(Clone, Copy)]
struct Window {
    begin: Instant,
    /// When the first was through.
    first_end: Instant,
    end: Instant,
}

/// What an extraction says of itself.
pub(crate) struct Described {
    pub(crate) tenant: String,
    /// The trace that it belongs to.
    pub(crate) trace: Option<String>,
    /// Its own id.
    pub(crate) extraction: String,
    pub(crate) split: String,
    pub(crate) model: Option<String>,
}

/// An extraction as part of its job, until it is dropped.
pub(crate) struct JobExtraction {
    jobs: Arc<Jobs>,
    extraction: String,
    clock: Arc<StageClock>,
    entered: bool,
}

impl Jobs {
    /// An extraction that begins to wait for its place.
    ///
    /// # Errors
    /// [`Refusal::Cancelled`] where an admin cancelled its job.
    pub(crate) fn enqueue(self: &Arc<Self>, described: Described) -> Result<JobExtraction, Refusal> {
        let Described {
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
            own: StageSums::default(),
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

    /// The clock of an extraction that runs.
    pub(crate) fn clock(&self, extraction: &str) -> Option<Arc<StageClock>> {
        self.0.lock().clocks.get(extraction).cloned()
    }

    /// All of them, the latest first.
    pub(crate) fn list(&self) -> Vec<JobInfo> {
        let mut jobs: Vec<JobInfo> = self.0.lock().jobs.values().map(|job| job.info()).collect();
        jobs.sort_by(|left, right| (right.active_at, &right.id).cmp(&(left.active_at, &left.id)));
        jobs
    }

    /// The job whose id begins so.
    ///
    /// # Errors
    /// [`Refusal`] where there is none, or several.
    pub(crate) fn find(&self, id: &str) -> Result<JobInfo, Refusal> {
        Ok(self.one(id)?.info())
    }

    /// Ends the job whose id begins so, and refuses what it asks for from now on.
    ///
    /// # Errors
    /// As [`Jobs::find`].
    pub(crate) fn cancel(&self, id: &str) -> Result<JobInfo, Refusal> {
        let job = self.one(id)?;
        job.cancel.cancel();
        Ok(job.info())
    }

    fn one(&self, id: &str) -> Result<Arc<Job>, Refusal> {
        let known = self.0.lock();
        let mut found = known.jobs.values().filter(|job| job.key.id.starts_with(id));
        match (found.next(), found.next()) {
            (Some(job), None) => Ok(Arc::clone(job)),
            (None, _) => Err(Refusal::not_found(format!(
                "no job {id:?} was seen by this host in the last day; list jobs with frostline admin top --jobs"
            ))),
            (Some(_), Some(_)) => Err(Refusal::request(format!(
                "several jobs begin with {id:?}; write more of the id"
            ))),
        }
    }
}

impl Known {
    /// The job of this key, which may be new.
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
    /// Since when it does nothing, as far as begins tell; `None` while it does something.
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
    /// So many images each spent `time` in a stage; [`JobStage::Run`] counts from when the lane was asked.
    pub(crate) fn add(&self, stage: JobStage, time: Duration, images: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let nanos = nanos.saturating_mul(images);
        self.own.add(stage, nanos);
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

    /// Makes a span of each stage under the request's, for those who export traces.
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

    /// The job's id.
    pub(crate) fn job(&self) -> &str {
        &self.job.key.id
    }

    /// Counts images that were answered.
    pub(crate) fn count_images(&self, images: u64) {
        self.job.progress.lock().images += images;
    }

    /// The times of this extraction.
    pub(crate) fn seconds(&self) -> StageSeconds {
        self.own.seconds()
    }

    /// Ends when an admin cancels the job.
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

    /// It has its place, which each of its `images` waited for so long.
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

/// Lanes whose time is counted.
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
        jobs.enqueue(Described {
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
        assert_eq!(clock.seconds().run, 0.0, "it waited, and has not come back");
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
            "two begin so"
        );
        assert!(jobs.cancel("t1").unwrap().cancelled);
        assert!(running.clock().cancelled().now_or_never().is_some());
        assert!(matches!(
            begin(&jobs, "acme", "t1", "c"),
            Err(Refusal::Cancelled { .. })
        ));
        assert!(
            begin(&jobs, "beta", "t1", "d").is_ok(),
            "another tenant's has the same name"
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
