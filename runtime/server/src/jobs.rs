//! Jobs on this host: groups extractions by job, and measures the time of images in every stage.

use frostline_primitives::now;
use frostline_tensor::{BoxFuture, GraphExecutor, OpError, Stage, Tensor};
use frostline_wire::{JobInfo, JobStage, StageSeconds};
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strum::EnumCount;

/// Maximum number of idle jobs per tenant. If it is reached, the job that was active least recently is
/// removed.
const JOBS: usize = 64;

/// Retention time of idle jobs, unless they are removed earlier because of [`JOBS`].
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Recent jobs of all tenants.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<JobTable>);

#[derive(Default)]
struct JobTable {
    jobs: HashMap<JobKey, Arc<TrackedJob>>,
    /// Clocks of active extractions, by extraction id.
    clocks: HashMap<String, Arc<StageClock>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct JobKey {
    tenant: String,
    id: String,
}

struct TrackedJob {
    key: JobKey,
    seconds: StageSums,
    progress: Mutex<Progress>,
}

struct Progress {
    /// The job without the seconds of the stages.
    info: JobInfo,
    /// Time of the same event as `active_at`, on a clock that never jumps.
    active: Instant,
}

/// Time of images by stage in nanoseconds. The time of [`JobStage::Run`] includes the wait for a lane.
#[derive(Default)]
struct StageSums([AtomicU64; JobStage::COUNT]);

/// Measures the time of images by stage, for the extraction and for the job.
pub(crate) struct StageClock {
    sums: StageSums,
    windows: Mutex<[Option<StageWindow>; JobStage::COUNT]>,
    job: Arc<TrackedJob>,
}

/// The period during which a stage was processing images of the extraction.
#[derive(Clone, Copy)]
struct StageWindow {
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
    pub(crate) fn enqueue(self: &Arc<Self>, described: NewExtraction) -> JobExtraction {
        let extraction = described.extraction;
        let key = JobKey {
            tenant: described.tenant,
            id: described.trace.unwrap_or_else(|| extraction.clone()),
        };
        let mut known = self.0.lock();
        let job = known.job(key, Instant::now());
        let mut progress = job.progress.lock();
        progress.info.queued += 1;
        progress.touch();
        progress.info.split = described.split;
        progress.info.model = described.model;
        drop(progress);
        let clock = Arc::new(StageClock {
            sums: StageSums::default(),
            windows: Mutex::default(),
            job,
        });
        known.clocks.insert(extraction.clone(), Arc::clone(&clock));
        drop(known);
        JobExtraction {
            jobs: Arc::clone(self),
            extraction,
            clock,
            entered: false,
        }
    }

    /// Returns the clock of an active extraction.
    pub(crate) fn clock(&self, extraction: &str) -> Option<Arc<StageClock>> {
        self.0.lock().clocks.get(extraction).cloned()
    }

    /// Lists all jobs, the most recently active first.
    pub(crate) fn list(&self) -> Vec<JobInfo> {
        let mut jobs: Vec<JobInfo> = self.0.lock().jobs.values().map(|job| job.info()).collect();
        sort(&mut jobs);
        jobs
    }
}

/// Creates a job without extractions, which started at `at` in seconds since 1970.
pub(crate) fn new_job(tenant: &str, id: &str, at: u64) -> JobInfo {
    JobInfo {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        started_at: at,
        active_at: at,
        ..JobInfo::default()
    }
}

/// Sorts jobs by last activity in descending order.
pub(crate) fn sort(jobs: &mut [JobInfo]) {
    jobs.sort_by(|left, right| (right.active_at, &right.id).cmp(&(left.active_at, &left.id)));
}

impl JobTable {
    /// Returns the job with this key, creating it if necessary.
    fn job(&mut self, key: JobKey, now: Instant) -> Arc<TrackedJob> {
        if let Some(job) = self.jobs.get(&key) {
            return Arc::clone(job);
        }
        self.jobs.retain(|_, job| {
            job.idle_since()
                .is_none_or(|since| now.saturating_duration_since(since) < REMEMBERED)
        });
        let own = self.jobs.values().filter(|job| job.key.tenant == key.tenant);
        if own.clone().count() >= JOBS {
            let idle = own.filter_map(|job| Some((job.idle_since()?, job.key.clone())));
            let oldest = idle.min_by_key(|(since, _)| *since);
            if let Some((_, oldest)) = oldest {
                self.jobs.remove(&oldest);
            }
        }
        let job = Arc::new(TrackedJob {
            key: key.clone(),
            seconds: StageSums::default(),
            progress: Mutex::new(Progress {
                info: new_job(&key.tenant, &key.id, frostline_primitives::now()),
                active: Instant::now(),
            }),
        });
        self.jobs.insert(key, Arc::clone(&job));
        job
    }
}

impl Progress {
    /// Records that an extraction was added or ended.
    fn touch(&mut self) {
        self.info.active_at = now();
        self.active = Instant::now();
    }

    /// Returns the time when the job became idle, or `None` if extractions are queued or running.
    fn idle_since(&self) -> Option<Instant> {
        (self.info.queued + self.info.running == 0).then_some(self.active)
    }
}

impl TrackedJob {
    fn idle_since(&self) -> Option<Instant> {
        self.progress.lock().idle_since()
    }

    fn info(&self) -> JobInfo {
        JobInfo {
            seconds: self.seconds.seconds(),
            ..self.progress.lock().info.clone()
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
            let known = window.get_or_insert(StageWindow {
                begin,
                first_end: end,
                end,
            });
            (known.begin, known.end) = (known.begin.min(begin), known.end.max(end));
        }
    }

    /// Emits a tracing span for each stage as child of the request's span.
    fn trace(&self) {
        let windows = *self.windows.lock();
        let seconds = self.seconds();
        let lane = windows.get(JobStage::Lane as usize).copied().flatten();
        for (stage, window) in JobStage::all().zip(windows) {
            let Some(StageWindow { mut begin, end, .. }) = window else {
                continue;
            };
            if let (JobStage::Run, Some(lane)) = (stage, lane) {
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
        self.job.progress.lock().info.images += images;
    }

    /// Returns the seconds of each stage of this extraction, summed over its images.
    pub(crate) fn seconds(&self) -> StageSeconds {
        self.sums.seconds()
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
        progress.info.queued -= 1;
        progress.info.running += 1;
        self.entered = true;
    }
}

impl Drop for JobExtraction {
    fn drop(&mut self) {
        self.clock.trace();
        self.jobs.0.lock().clocks.remove(&self.extraction);
        let mut progress = self.clock.job.progress.lock();
        progress.touch();
        if self.entered {
            progress.info.running -= 1;
            progress.info.extractions += 1;
        } else {
            progress.info.queued -= 1;
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
        let started = Instant::now();
        let clock = Arc::clone(&self.clock);
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

    fn begin(jobs: &Arc<Jobs>, tenant: &str, trace: &str, extraction: &str) -> JobExtraction {
        jobs.enqueue(NewExtraction {
            tenant: tenant.to_owned(),
            trace: (!trace.is_empty()).then(|| trace.to_owned()),
            extraction: extraction.to_owned(),
            split: "layer2".to_owned(),
            model: None,
        })
    }

    fn find(jobs: &Jobs, id: &str) -> JobInfo {
        jobs.list().into_iter().find(|job| job.id == id).unwrap()
    }

    #[test]
    fn extractions_of_a_trace_are_one_job_of_their_tenant() {
        let jobs = Arc::<Jobs>::default();
        let mut one = begin(&jobs, "acme", "4bf9", "a");
        one.enter(Duration::from_secs(2), 3);
        let two = begin(&jobs, "acme", "4bf9", "b");
        let _other = begin(&jobs, "beta", "", "c");
        assert_eq!(jobs.list().len(), 2);
        let job = find(&jobs, "4bf9");
        assert_eq!((job.queued, job.running, job.extractions), (1, 1, 0));
        assert_eq!(job.seconds.place, 6.0);
        assert_eq!(find(&jobs, "c").tenant, "beta");
        jobs.clock("b")
            .unwrap()
            .add(JobStage::Decode, Duration::from_secs(1), 1);
        assert_eq!(
            (one.clock().seconds().decode, two.clock().seconds().decode),
            (0.0, 1.0)
        );
        drop((one, two));
        let job = find(&jobs, "4bf9");
        assert_eq!((job.queued, job.running, job.extractions), (0, 0, 1));
        assert_eq!(job.seconds.decode, 1.0);
        assert!(jobs.clock("b").is_none());
    }

    #[test]
    fn time_at_the_lanes_is_waiting_or_running() {
        let jobs = Arc::<Jobs>::default();
        let extraction = begin(&jobs, "acme", "t", "a");
        let clock = extraction.clock();
        clock.add(JobStage::Lane, Duration::from_secs(3), 2);
        assert_eq!(clock.seconds().run, 0.0, "the batch is still running");
        clock.add(JobStage::Run, Duration::from_secs(4), 2);
        assert_eq!((clock.seconds().lane, clock.seconds().run), (6.0, 2.0));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_runs_is_kept() {
        let jobs = Arc::<Jobs>::default();
        let running = begin(&jobs, "acme", "running", "r");
        for index in 0..3 * JOBS {
            begin(&jobs, "acme", &format!("trace-{index}"), "x");
        }
        begin(&jobs, "beta", "one", "y");
        assert_eq!(jobs.list().len(), JOBS + 1);
        find(&jobs, "running");
        drop(running);
        let mut known = jobs.0.lock();
        let key = JobKey {
            tenant: "acme".to_owned(),
            id: "later".to_owned(),
        };
        known.job(key, Instant::now() + REMEMBERED);
        assert_eq!(known.jobs.len(), 1, "a day later all is forgotten");
    }
}
