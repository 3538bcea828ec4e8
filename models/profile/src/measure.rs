use crate::ProfileError;
use crate::encoded::encoded_activations;
use crate::fit::{BatchTime, line, minimum, prefixes};
use frostline_batching::{Charge, run_blocking};
use frostline_tensor::{GraphExecutor, Normalization, Precision, Stage, Tensor};
use frostline_wire::{CutProfile, Encoded, Linear, TensorInfo};
use futures::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Model to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredModel {
    /// SHA-256 of the model. The executor must have this model.
    pub model: String,
    /// Name of the input tensor.
    pub input: String,
    /// Normalization of samples `u8[n, 3, h, w]`, which jobs submit. `None` if samples have the format of the
    /// model input.
    pub pixels: Option<Normalization>,
    /// Required precision of GPU computations.
    pub precision: Precision,
    /// Cuts in execution order, see [`measured_cuts`](crate::measured_cuts).
    pub cuts: Vec<MeasuredCut>,
}

/// Cut to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredCut {
    /// Name of the cut.
    pub name: String,
    /// Tensors that a row at the cut concatenates. Empty for a single tensor.
    pub tensors: Vec<TensorInfo>,
    /// Memory usage from the input to the cut in bytes.
    pub memory: Linear,
}

/// Limits and batch sizes of a measurement.
#[derive(Debug, Clone)]
pub struct MeasureOptions {
    /// Number of rows in the larger batch. It should match the batch size in normal operation. Slow networks
    /// are measured with smaller batches.
    pub batch: usize,
    /// True if the device pads all batches to `batch` rows. Smaller batches would take the same time, so slow
    /// networks are measured with the full size.
    pub padded: bool,
    /// Number of batches that the executor runs concurrently.
    pub lanes: usize,
    /// Number of repetitions per measurement. The warm-up is not counted.
    pub repetitions: usize,
    /// Time limit for the full number of repetitions. It is reduced to two afterwards, and to one after twice
    /// this time.
    pub full_repetition_time: Duration,
    /// Deadline of the measurement.
    pub deadline: Duration,
    /// Pays for encoding the activations.
    pub charge: Charge,
}

impl Default for MeasureOptions {
    /// Uses 16 rows, which is a host's usual grant, 3 repetitions, and limits of 15 s and 60 s. On two cores,
    /// ResNet50 needs 12 s and VGG19 half a minute, which is the slowest of the usual networks.
    fn default() -> Self {
        Self {
            batch: 16,
            padded: false,
            lanes: 1,
            repetitions: 3,
            full_repetition_time: Duration::from_secs(15),
            deadline: Duration::from_secs(60),
            charge: Charge::default(),
        }
    }
}

/// Result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Results per cut. The order matches [`MeasuredModel::cuts`].
    pub cuts: Vec<CutProfile>,
    /// Sizes of both batches.
    pub batches: Batches,
}

/// Batch sizes of a measurement in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// Number of rows in the smaller batch.
    pub small: usize,
    /// Number of rows in the larger batch.
    pub large: usize,
}

/// Measures a model. `input` contains real samples, see [`MeasuredModel::pixels`]. Segments between cuts
/// are executed separately, followed by the prefix up to the last cut. See `docs/profiles.md`. Dropping the
/// future cancels the measurement.
///
/// # Errors
/// Returns [`ProfileError::Stage`] with the failed segment, [`ProfileError::Deadline`] if the measurement
/// takes too long, and other variants of [`ProfileError`] for invalid input.
pub async fn measure(
    subject: &MeasuredModel,
    input: &Tensor,
    executor: &Arc<dyn GraphExecutor>,
    rules: &MeasureOptions,
) -> Result<Measurement, ProfileError> {
    let started = Instant::now();
    measure_with_clock(&|| started.elapsed(), subject, input, executor, rules).await
}

/// Time since the start of the measurement.
pub(crate) type Clock<'a> = &'a (dyn Fn() -> Duration + Sync);

/// Implements [`measure`] with a replaceable clock. The deadline always uses the real clock.
pub(crate) async fn measure_with_clock(
    clock: Clock<'_>,
    subject: &MeasuredModel,
    input: &Tensor,
    executor: &Arc<dyn GraphExecutor>,
    rules: &MeasureOptions,
) -> Result<Measurement, ProfileError> {
    let run = MeasurementRun {
        clock,
        subject,
        executor,
        rules,
        samples: input.rows()?,
    };
    tokio::time::timeout(rules.deadline, run.measure(input))
        .await
        .map_err(|_| ProfileError::Deadline {
            seconds: rules.deadline.as_secs(),
        })?
}

struct MeasurementRun<'a> {
    clock: Clock<'a>,
    subject: &'a MeasuredModel,
    executor: &'a Arc<dyn GraphExecutor>,
    rules: &'a MeasureOptions,
    samples: usize,
}

struct Segment {
    small: f64,
    large: f64,
    bytes_per_sample: u64,
    encoded: BTreeMap<String, Encoded>,
}

struct PrefixTimes {
    small: f64,
    large: f64,
    /// Seconds while each lane runs a batch.
    busy: f64,
}

impl MeasurementRun<'_> {
    async fn measure(&self, input: &Tensor) -> Result<Measurement, ProfileError> {
        let whole = self.whole_stage()?;
        if self.samples == 0 {
            return Err(ProfileError::Missing { what: "sample" });
        }
        let batches = self.batches(&whole, input).await?;
        let mut rows = repeated(input, batches.large)?;
        let mut segments = Vec::with_capacity(self.subject.cuts.len());
        for (stage, cut) in self.segment_stages().iter().zip(&self.subject.cuts) {
            let (segment, output) = self.segment(stage, cut, &rows, batches.small).await?;
            segments.push(segment);
            rows = output;
        }
        let whole = self.measure_prefix(&whole, input, batches).await?;
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
            pixels: self.subject.pixels.filter(|_| from == self.subject.input),
            precision: self.subject.precision,
        }
    }

    fn whole_stage(&self) -> Result<Stage, ProfileError> {
        let last = self.subject.cuts.last();
        let last = last.ok_or(ProfileError::Missing { what: "cut" })?;
        Ok(self.stage(&self.subject.input, &last.name))
    }

    fn segment_stages(&self) -> Vec<Stage> {
        let names = self.subject.cuts.iter().map(|cut| cut.name.as_str());
        let from = std::iter::once(self.subject.input.as_str()).chain(names.clone());
        from.zip(names).map(|(from, to)| self.stage(from, to)).collect()
    }

    /// Returns the batch sizes. Unless batches are padded, the configured size is halved until the expected
    /// time is below a third of the deadline.
    async fn batches(&self, whole: &Stage, input: &Tensor) -> Result<Batches, ProfileError> {
        /// Minimum number of executions of the larger batch. Both the segments and the prefix have a warm-up.
        const PASSES: f64 = 5.0;
        const PROBE: usize = 2;
        const LEAST: usize = 4;
        let probe = repeated(input, PROBE)?;
        self.time_all_lanes(whole, &probe).await?;
        let (seconds, _) = self.time(whole, &probe, 1).await?;
        let allowed = self.rules.deadline.as_secs_f64() / 3.0;
        let mut large = self.rules.batch.max(PROBE);
        while !self.rules.padded && large > LEAST && PASSES * seconds / PROBE as f64 * large as f64 > allowed
        {
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
        cut: &MeasuredCut,
        rows: &Tensor,
        small: usize,
    ) -> Result<(Segment, Tensor), ProfileError> {
        let output = self.time_all_lanes(stage, rows).await?.1;
        let large = self.time_idle(stage, rows).await?;
        let small = self.time_idle(stage, &rows.slice_rows(0, small)?).await?;
        let bytes_per_sample = (output.byte_len() / output.rows()?.max(1)) as u64;
        let distinct = output.slice_rows(0, self.samples.min(output.rows()?))?;
        let tensors = cut.tensors.clone();
        let encoded = run_blocking((), self.rules.deadline, self.rules.charge.clone(), move |_| {
            encoded_activations(&distinct, &tensors)
        });
        let segment = Segment {
            small,
            large,
            bytes_per_sample,
            encoded: encoded.await.map_err(|_| ProfileError::Panicked)??,
        };
        Ok((segment, output))
    }

    async fn measure_prefix(
        &self,
        stage: &Stage,
        input: &Tensor,
        batches: Batches,
    ) -> Result<PrefixTimes, ProfileError> {
        let few = repeated(input, batches.small)?;
        let many = repeated(input, batches.large)?;
        self.time_all_lanes(stage, &many).await?;
        let mut busy = Vec::new();
        for _ in 0..self.repetitions() {
            busy.push(self.time_all_lanes(stage, &many).await?.0);
        }
        Ok(PrefixTimes {
            large: self.time_idle(stage, &many).await?,
            small: self.time_idle(stage, &few).await?,
            busy: minimum(&busy),
        })
    }

    fn combine(&self, segments: Vec<Segment>, whole: &PrefixTimes, batches: Batches) -> Vec<CutProfile> {
        let bytes: Vec<f64> = segments
            .iter()
            .map(|segment| segment.bytes_per_sample as f64)
            .collect();
        let small: Vec<f64> = segments.iter().map(|segment| segment.small).collect();
        let small = prefixes(&small, &bytes, whole.small);
        let large: Vec<f64> = segments.iter().map(|segment| segment.large).collect();
        let large = prefixes(&large, &bytes, whole.large);
        let rows = (batches.large * self.rules.lanes.max(1)) as f64;
        let busy = whole.busy / rows / whole.large.max(f64::MIN_POSITIVE);
        let times = small.into_iter().zip(large);
        let cuts = self.subject.cuts.iter().zip(segments).zip(times);
        cuts.map(|((cut, segment), (small, large))| CutProfile {
            name: cut.name.clone(),
            compute: line(
                BatchTime::new(batches.small, small),
                BatchTime::new(batches.large, large),
            ),
            busy_seconds_per_sample: busy * large,
            bytes_per_sample: segment.bytes_per_sample,
            encoded: segment.encoded,
            memory: cut.memory,
        })
        .collect()
    }

    /// Runs a batch on each lane concurrently, and returns the duration and one of the outputs. In the first
    /// call, all lanes load the stage.
    async fn time_all_lanes(&self, stage: &Stage, batch: &Tensor) -> Result<(f64, Tensor), ProfileError> {
        self.time(stage, batch, self.rules.lanes.max(1)).await
    }

    /// Runs a batch on this number of lanes.
    async fn time(&self, stage: &Stage, batch: &Tensor, lanes: usize) -> Result<(f64, Tensor), ProfileError> {
        let batches = vec![batch.clone(); lanes];
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
            .ok_or(ProfileError::Missing { what: "lane" })
    }

    /// Returns the minimum duration of a batch on an idle machine in seconds.
    async fn time_idle(&self, stage: &Stage, batch: &Tensor) -> Result<f64, ProfileError> {
        /// Duration in seconds below which the number of repetitions is doubled. Short executions are more
        /// sensitive to noise and cheap to repeat.
        const SHORT: f64 = 0.02;
        let mut seconds = vec![self.time(stage, batch, 1).await?.0];
        let short = seconds.iter().all(|seconds| *seconds < SHORT);
        let most = self.repetitions() * if short { 2 } else { 1 };
        while seconds.len() < most {
            seconds.push(self.time(stage, batch, 1).await?.0);
        }
        Ok(minimum(&seconds))
    }

    /// Returns the number of repetitions, which decreases over time.
    fn repetitions(&self) -> usize {
        let gone = (self.clock)();
        let most = match () {
            () if gone < self.rules.full_repetition_time => self.rules.repetitions,
            () if gone < self.rules.full_repetition_time * 2 => 2,
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

/// Returns `count` rows, and repeats `input` if it has fewer.
fn repeated(input: &Tensor, count: usize) -> Result<Tensor, ProfileError> {
    let rows = input.rows()?.max(1);
    let starts = (0..count).step_by(rows);
    let parts = starts.map(|start| input.slice_rows(0, rows.min(count - start)));
    Ok(Tensor::concat_rows(&parts.collect::<Result<Vec<_>, _>>()?)?)
}
