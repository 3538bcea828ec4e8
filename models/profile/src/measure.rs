use crate::ProfileError;
use crate::encoded::encoded_activations;
use crate::fit::{Point, least, line, prefixes};
use frostline_tensor::{GraphExecutor, Precision, Stage, Tensor};
use frostline_wire::{CutProfile, Encoded, Linear};
use futures::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is measured: cuts of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredModel {
    /// The model's SHA-256, as the executor knows it.
    pub model: String,
    /// Its input's name.
    pub input: String,
    /// How exactly the executor has to compute it.
    pub precision: Precision,
    /// The cuts in the order of execution, each with what [`memory`](crate::memory) says of it.
    pub cuts: Vec<(String, Linear)>,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Rows of the larger of the two batches, as the executor gets them in earnest. Slow networks are measured with less.
    pub batch: usize,
    /// Batches the executor runs at once.
    pub lanes: usize,
    /// Times each figure is measured, after a first run that does not count.
    pub repetitions: usize,
    /// When this much time is gone, figures are measured once or twice only.
    pub patience: Duration,
    /// When this much time is gone, the profile fails.
    pub deadline: Duration,
}

impl Default for Rules {
    /// 16 rows, a host's usual grant; the least of 3; 15 s for care and 60 s in all: ResNet50 takes 12 s on two cores, VGG19, the slowest
    /// of the usual networks, half a minute.
    fn default() -> Self {
        Self {
            batch: 16,
            lanes: 1,
            repetitions: 3,
            patience: Duration::from_secs(15),
            deadline: Duration::from_secs(60),
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The subject's cuts, in its order.
    pub cuts: Vec<CutProfile>,
    /// The two batches.
    pub batches: Batches,
}

/// Rows of the batches that a network is measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// Of the smaller one.
    pub small: usize,
    /// Of the larger one.
    pub large: usize,
}

/// Measures a model at its cuts on `input`, real samples as its first cut's layers take them. The network is run in segments, from cut
/// to cut, and once whole: `docs/profiles.md`. Dropping the future ends it.
///
/// # Errors
/// [`ProfileError`], naming the segment that failed.
pub async fn measure(
    subject: &MeasuredModel,
    input: &Tensor,
    executor: &Arc<dyn GraphExecutor>,
    rules: &Rules,
) -> Result<Measurement, ProfileError> {
    let started = Instant::now();
    measure_by(&|| started.elapsed(), subject, input, executor, rules).await
}

/// Time since the profile began.
pub(crate) type Clock<'a> = &'a (dyn Fn() -> Duration + Sync);

/// [`measure`] by another clock; the deadline alone is kept by the real one.
pub(crate) async fn measure_by(
    clock: Clock<'_>,
    subject: &MeasuredModel,
    input: &Tensor,
    executor: &Arc<dyn GraphExecutor>,
    rules: &Rules,
) -> Result<Measurement, ProfileError> {
    let run = Run {
        clock,
        subject,
        executor,
        rules,
        samples: input.rows()?,
    };
    let deadline = |_| ProfileError::Deadline {
        seconds: rules.deadline.as_secs(),
    };
    tokio::time::timeout(rules.deadline, run.measure(input))
        .await
        .map_err(deadline)?
}

struct Run<'a> {
    clock: Clock<'a>,
    subject: &'a MeasuredModel,
    executor: &'a Arc<dyn GraphExecutor>,
    rules: &'a Rules,
    samples: usize,
}

/// One segment alone.
struct Segment {
    small: f64,
    large: f64,
    bytes_per_sample: u64,
    encoded: BTreeMap<String, Encoded>,
}

/// The whole prefix, from the input to the last cut.
struct Whole {
    small: f64,
    large: f64,
    /// One batch on every lane at once.
    busy: f64,
}

impl Run<'_> {
    async fn measure(&self, input: &Tensor) -> Result<Measurement, ProfileError> {
        let whole = self.whole_stage()?;
        if self.samples == 0 {
            return Err(ProfileError::Nothing { what: "sample" });
        }
        let batches = self.batches(&whole, input).await?;
        let mut rows = repeated(input, batches.large)?;
        let mut segments = Vec::with_capacity(self.subject.cuts.len());
        for stage in self.segment_stages() {
            let (segment, output) = self.segment(&stage, &rows, batches.small).await?;
            segments.push(segment);
            rows = output;
        }
        let whole = self.whole(&whole, input, batches).await?;
        Ok(Measurement {
            cuts: self.combine(segments, &whole, batches),
            batches,
        })
    }

    fn stage(&self, from: &str, to: &str) -> Stage {
        Stage {
            model: self.subject.model.clone(),
            from: from.to_owned(),
            to: to.to_owned(),
            pixels: None,
            precision: self.subject.precision,
        }
    }

    fn whole_stage(&self) -> Result<Stage, ProfileError> {
        let last = self.subject.cuts.last();
        let (last, _) = last.ok_or(ProfileError::Nothing { what: "cut" })?;
        Ok(self.stage(&self.subject.input, last))
    }

    fn segment_stages(&self) -> Vec<Stage> {
        let names = || self.subject.cuts.iter().map(|(name, _)| name.as_str());
        let from = std::iter::once(self.subject.input.as_str()).chain(names());
        from.zip(names()).map(|(from, to)| self.stage(from, to)).collect()
    }

    /// Rows of the two batches: as many as the rules say, or as a third of the deadline allows for.
    async fn batches(&self, whole: &Stage, input: &Tensor) -> Result<Batches, ProfileError> {
        /// How often the network runs on the larger batch at least: segments and whole, each first without being counted.
        const PASSES: f64 = 5.0;
        const PROBE: usize = 2;
        const LEAST: usize = 4;
        let probe = repeated(input, PROBE)?;
        self.together(whole, &probe).await?;
        let (seconds, _) = self.once(whole, &probe).await?;
        let allowed = self.rules.deadline.as_secs_f64() / 3.0;
        let mut large = self.rules.batch.max(PROBE);
        while large > LEAST && PASSES * seconds / PROBE as f64 * large as f64 > allowed {
            large /= 2;
        }
        Ok(Batches {
            small: (large / 8).max(1),
            large,
        })
    }

    async fn segment(
        &self,
        stage: &Stage,
        rows: &Tensor,
        small: usize,
    ) -> Result<(Segment, Tensor), ProfileError> {
        let output = self.together(stage, rows).await?.1;
        let large = self.alone(stage, rows).await?;
        let small = self.alone(stage, &rows.slice_rows(0, small)?).await?;
        let bytes_per_sample = (output.byte_len() / output.rows()?.max(1)) as u64;
        let distinct = output.slice_rows(0, self.samples.min(output.rows()?))?;
        let encoded = tokio::task::spawn_blocking(move || encoded_activations(&distinct));
        let segment = Segment {
            small,
            large,
            bytes_per_sample,
            encoded: encoded.await.map_err(|_| ProfileError::Lost)??,
        };
        Ok((segment, output))
    }

    async fn whole(&self, stage: &Stage, input: &Tensor, batches: Batches) -> Result<Whole, ProfileError> {
        let (few, many) = (repeated(input, batches.small)?, repeated(input, batches.large)?);
        self.together(stage, &many).await?;
        let mut busy = Vec::new();
        for _ in 0..self.repetitions() {
            busy.push(self.together(stage, &many).await?.0);
        }
        Ok(Whole {
            large: self.alone(stage, &many).await?,
            small: self.alone(stage, &few).await?,
            busy: least(&busy),
        })
    }

    fn combine(&self, segments: Vec<Segment>, whole: &Whole, batches: Batches) -> Vec<CutProfile> {
        let bytes: Vec<f64> = segments
            .iter()
            .map(|segment| segment.bytes_per_sample as f64)
            .collect();
        let seconds = |of: fn(&Segment) -> f64, whole: f64| {
            let alone: Vec<f64> = segments.iter().map(of).collect();
            prefixes(&alone, &bytes, whole)
        };
        let small = seconds(|segment| segment.small, whole.small);
        let large = seconds(|segment| segment.large, whole.large);
        let rows = (batches.large * self.rules.lanes.max(1)) as f64;
        let busy = whole.busy / rows / whole.large.max(f64::MIN_POSITIVE);
        let times = small.into_iter().zip(large);
        let cuts = self.subject.cuts.iter().zip(segments).zip(times);
        let point = |rows, seconds| Point { rows, seconds };
        cuts.map(|(((name, memory), segment), (small, large))| CutProfile {
            name: name.clone(),
            compute: line(point(batches.small, small), point(batches.large, large)),
            busy_seconds_per_sample: busy * large,
            bytes_per_sample: segment.bytes_per_sample,
            encoded: segment.encoded,
            memory: *memory,
        })
        .collect()
    }

    /// Runs one batch on every lane at once. The first time, that has each lane load the stage.
    async fn together(&self, stage: &Stage, batch: &Tensor) -> Result<(f64, Tensor), ProfileError> {
        let batches = vec![batch.clone(); self.rules.lanes.max(1)];
        let started = (self.clock)();
        let runs = batches
            .into_iter()
            .map(|batch| self.executor.submit(stage, batch));
        let outputs = try_join_all(runs).await;
        let seconds = ((self.clock)() - started).as_secs_f64();
        let output = outputs
            .map_err(|source| failed(stage, source))?
            .into_iter()
            .next();
        output
            .map(|output| (seconds, output))
            .ok_or(ProfileError::Nothing { what: "lane" })
    }

    /// Seconds of one batch while nothing else runs.
    async fn alone(&self, stage: &Stage, batch: &Tensor) -> Result<f64, ProfileError> {
        /// Short runs are disturbed the most, and cost the least to repeat.
        const SHORT: f64 = 0.02;
        let mut seconds = vec![self.once(stage, batch).await?.0];
        let short = seconds.iter().all(|seconds| *seconds < SHORT);
        let most = self.repetitions() * if short { 2 } else { 1 };
        while seconds.len() < most {
            seconds.push(self.once(stage, batch).await?.0);
        }
        Ok(least(&seconds))
    }

    async fn once(&self, stage: &Stage, batch: &Tensor) -> Result<(f64, Tensor), ProfileError> {
        let batch = batch.clone();
        let started = (self.clock)();
        let output = self.executor.submit(stage, batch).await;
        let seconds = ((self.clock)() - started).as_secs_f64();
        Ok((seconds, output.map_err(|source| failed(stage, source))?))
    }

    /// Fewer as time goes by.
    fn repetitions(&self) -> usize {
        let gone = (self.clock)();
        let most = match () {
            () if gone < self.rules.patience => self.rules.repetitions,
            () if gone < self.rules.patience * 2 => 2,
            () => 1,
        };
        most.clamp(1, self.rules.repetitions.max(1))
    }
}

fn failed(stage: &Stage, source: frostline_tensor::OpError) -> ProfileError {
    ProfileError::Stage {
        from: stage.from.clone(),
        to: stage.to.clone(),
        source,
    }
}

/// `count` rows of `input`, again from the first where it has fewer.
fn repeated(input: &Tensor, count: usize) -> Result<Tensor, ProfileError> {
    let rows = input.rows()?.max(1);
    let starts = (0..count).step_by(rows);
    let parts = starts.map(|start| input.slice_rows(0, rows.min(count - start)));
    Ok(Tensor::concat_rows(&parts.collect::<Result<Vec<_>, _>>()?)?)
}
