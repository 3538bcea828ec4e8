//! Measures the slowdown of computing while objects are read. The cost is zero for a remote store and a host
//! with many cores, and up to the full work of the store if it runs on the cores of the host.

use crate::extraction::READS_AT_ONCE;
use crate::refusal::Refusal;
use frostline_objects::Store;
use frostline_tensor::{GraphExecutor, OpError, Stage, Tensor};
use frostline_wire::RequestedSample;
use futures::future::try_join_all;
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Target duration of a computation in seconds. Many reads finish during this time.
const MEASURED_SECONDS: f64 = 0.2;

/// Number of measurements with and without reads.
const REPETITIONS: usize = 4;

/// Computation that runs concurrently with reads.
pub(super) struct ReadingCost<'a> {
    pub(super) executor: &'a Arc<dyn GraphExecutor>,
    pub(super) stage: Stage,
    pub(super) rows: &'a Tensor,
    /// Rows to which the device pads batches.
    pub(super) padded_rows: Option<usize>,
    pub(super) lanes: usize,
    /// Inverse of the rate with all lanes busy, in wall-clock seconds per sample.
    pub(super) seconds_per_sample: f64,
    /// Seconds of a read without concurrent work. This is the upper limit of the cost.
    pub(super) read_seconds: f64,
}

/// Measured durations, alone and next to concurrent reads.
#[derive(Debug, Clone, Copy)]
struct ComputeTimes {
    /// Seconds without reads.
    alone: f64,
    /// Seconds with reads.
    with_reads: f64,
    /// Objects read in the meantime.
    reads: usize,
}

impl ReadingCost<'_> {
    /// Returns the slowdown of computing per read sample, in wall-clock seconds with all lanes busy. Returns
    /// 0 if an object cannot be read.
    pub(super) async fn measure(
        &self,
        store: &Store,
        samples: &[RequestedSample],
        object_bytes: u64,
    ) -> Result<f64, Refusal> {
        let (rows, passes) = self.rows_and_passes()?;
        let batch = self.rows.slice_rows(0, rows).map_err(Refusal::host)?;
        self.compute(&batch, 1).await?;
        let mut turns = Vec::with_capacity(REPETITIONS);
        for _ in 0..REPETITIONS {
            let alone = self.compute(&batch, passes).await?;
            let read = AtomicUsize::new(0);
            let with_reads = tokio::select! {
                biased;
                seconds = self.compute(&batch, passes) => seconds?,
                // Reads end only if an object cannot be read. The cost is then unknown.
                () = keep_reading(store, samples, object_bytes, &read) => return Ok(0.0),
            };
            turns.push(ComputeTimes {
                alone,
                with_reads,
                reads: read.into_inner(),
            });
        }
        Ok(per_read(&turns).min(self.read_seconds))
    }

    /// Returns the rows per batch, and the number of consecutive batches for a single measurement.
    fn rows_and_passes(&self) -> Result<(usize, usize), Refusal> {
        let most = self.rows.rows().map_err(Refusal::host)?;
        let row = (self.seconds_per_sample * self.lanes.max(1) as f64).max(1e-6);
        let rows = ((MEASURED_SECONDS / row) as usize).clamp(1, most.max(1));
        let computed = rows.max(self.padded_rows.unwrap_or(1));
        let passes = (MEASURED_SECONDS / (row * computed as f64))
            .ceil()
            .clamp(1.0, 1000.0);
        Ok((rows, passes as usize))
    }

    /// Returns the seconds that `passes` batches need on every lane.
    async fn compute(&self, batch: &Tensor, passes: usize) -> Result<f64, OpError> {
        let started = Instant::now();
        for _ in 0..passes {
            let batches = vec![batch.clone(); self.lanes.max(1)];
            try_join_all(
                batches
                    .into_iter()
                    .map(|batch| self.executor.submit(&self.stage, batch)),
            )
            .await?;
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

/// Reads `samples` repeatedly and counts the reads, with [`READS_AT_ONCE`] concurrent reads. Returns after a
/// failed read.
async fn keep_reading(store: &Store, samples: &[RequestedSample], object_bytes: u64, read: &AtomicUsize) {
    let objects = stream::iter((0..samples.len()).cycle())
        .map(|index| {
            let store = store.clone();
            let asked = samples.get(index).cloned();
            async move {
                let sample = asked?.sample;
                store.read_sample(&sample, object_bytes).await.ok()
            }
        })
        .buffer_unordered(READS_AT_ONCE)
        .take_while(|object| std::future::ready(object.is_some()));
    objects
        .for_each(|_| {
            read.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        })
        .await;
}

/// Returns the seconds per read. Uses the minimum of the measurements, because other load can only increase
/// them.
fn per_read(turns: &[ComputeTimes]) -> f64 {
    let alone = least(turns.iter().map(|turn| turn.alone));
    let read = turns.iter().filter(|turn| turn.reads > 0);
    least(read.map(|turn| (turn.with_reads - alone) / turn.reads as f64)).max(0.0)
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.min_by(f64::total_cmp).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::{BoxFuture, Precision, SampleRef};
    use futures::FutureExt;

    /// Counts batches. A batch yields to the scheduler several times to let reads run. Batches after the
    /// first `end` never finish.
    struct Fake {
        submitted: AtomicUsize,
        end: usize,
    }

    impl GraphExecutor for Fake {
        fn submit(&self, _: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
            if self.submitted.fetch_add(1, Ordering::Relaxed) >= self.end {
                return std::future::pending().boxed();
            }
            async move {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                Ok(batch)
            }
            .boxed()
        }
    }

    /// Returns the cost of reading `keys` and the number of submitted batches. Only the first `end` batches
    /// finish, and only the object 'a' exists.
    async fn cost(keys: &[&str], end: usize) -> (f64, usize) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), [1; 100]).unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let fake = Arc::new(Fake {
            submitted: AtomicUsize::new(0),
            end,
        });
        let executor: Arc<dyn GraphExecutor> = Arc::clone(&fake) as _;
        let rows = Tensor::f32([2, 1], vec![0.0; 2]).unwrap();
        let stage = Stage {
            model: String::new(),
            from: String::new(),
            to: String::new(),
            pixels: None,
            precision: Precision::Full,
        };
        let mut beside = ReadingCost {
            executor: &executor,
            stage,
            rows: &rows,
            padded_rows: Some(20),
            lanes: 1,
            seconds_per_sample: MEASURED_SECONDS / 2.0 / 50.0,
            read_seconds: 1.0,
        };
        assert_eq!(
            beside.rows_and_passes().unwrap(),
            (2, 5),
            "a padded batch needs ten times as long"
        );
        beside.padded_rows = None;
        assert_eq!(beside.rows_and_passes().unwrap(), (2, 50));
        let sample = |key: &&str| RequestedSample {
            position: 0,
            sample: SampleRef::new(*key),
        };
        let samples: Vec<RequestedSample> = keys.iter().map(sample).collect();
        let cost = beside.measure(&store, &samples, 1000).await.unwrap();
        (cost, fake.submitted.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn every_repetition_computes_with_and_without_reads() {
        let (cost, batches) = cost(&["a"], usize::MAX).await;
        assert!((0.0..=1.0).contains(&cost), "{cost}");
        assert_eq!(batches, 1 + 2 * REPETITIONS * 50);
    }

    #[tokio::test]
    async fn an_unreadable_object_ends_the_measurement() {
        for keys in [&[][..], &["b"]] {
            // The batch next to the first reads never finishes, so only the failed read ends the measurement.
            let alone = 1 + 50;
            let (cost, batches) = cost(keys, alone).await;
            assert_eq!(cost, 0.0);
            assert_eq!(batches, alone + 1);
        }
    }

    #[test]
    fn the_minimum_excludes_noise() {
        let turn = |alone, with_reads, reads| ComputeTimes {
            alone,
            with_reads,
            reads,
        };
        let quiet = turn(1.0, 2.0, 10);
        assert!((per_read(&[quiet]) - 0.1).abs() < 1e-9);
        let turns = [turn(1.0, 9.0, 10), quiet, turn(5.0, 2.5, 10), turn(1.0, 1.0, 0)];
        assert!((per_read(&turns) - 0.1).abs() < 1e-9);
        assert_eq!(per_read(&[turn(1.1, 1.0, 10)]), 0.0);
        assert_eq!(per_read(&[]), 0.0);
    }
}
