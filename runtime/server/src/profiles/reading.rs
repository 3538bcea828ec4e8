//! What reading objects takes from the computing beside it: nothing where a store answers from afar and cores are many, up to a store's
//! whole work where it runs on the host's own cores.

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

/// Seconds one measurement computes for, that the reads beside it are many.
const SPAN: f64 = 0.2;

/// Measurements without reads and with them, in turns.
const TURNS: usize = 4;

/// Computing to measure beside.
pub(super) struct Beside<'a> {
    pub(super) executor: &'a Arc<dyn GraphExecutor>,
    pub(super) stage: Stage,
    /// Real samples.
    pub(super) rows: &'a Tensor,
    pub(super) lanes: usize,
    /// Seconds of the whole machine for one sample with all lanes busy.
    pub(super) seconds_per_sample: f64,
    /// Wall seconds of one read with nothing beside it, which is the most it can take.
    pub(super) read_seconds: f64,
}

/// Computing without reads, and with them.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Seconds.
    alone: f64,
    /// Seconds.
    beside: f64,
    /// Objects read meanwhile.
    reads: usize,
}

impl Beside<'_> {
    /// Seconds of the whole machine that reading one of `samples` takes from the computing.
    pub(super) async fn cost(
        &self,
        store: &Store,
        samples: &[RequestedSample],
        object_bytes: u64,
    ) -> Result<f64, Refusal> {
        let (rows, passes) = self.extent()?;
        let batch = self.rows.slice_rows(0, rows).map_err(Refusal::host)?;
        self.compute(&batch, 1).await?;
        let mut turns = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            let alone = self.compute(&batch, passes).await?;
            let read = AtomicUsize::new(0);
            let beside = tokio::select! {
                biased;
                seconds = self.compute(&batch, passes) => seconds?,
                // They end at an object that cannot be read: nothing is learnt then.
                () = keep_reading(store, samples, object_bytes, &read) => return Ok(0.0),
            };
            turns.push(Turn {
                alone,
                beside,
                reads: read.into_inner(),
            });
        }
        Ok(per_read(&turns).min(self.read_seconds))
    }

    /// Rows of a batch and batches one after the other that take about [`SPAN`].
    fn extent(&self) -> Result<(usize, usize), Refusal> {
        let most = self.rows.rows().map_err(Refusal::host)?;
        let row = (self.seconds_per_sample * self.lanes.max(1) as f64).max(1e-6);
        let rows = ((SPAN / row) as usize).clamp(1, most.max(1));
        let passes = (SPAN / (row * rows as f64)).ceil().clamp(1.0, 1000.0);
        Ok((rows, passes as usize))
    }

    /// Seconds of so many batches on every lane.
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

/// Reads `samples` over and over, as many at once as extractions do, and counts them; until one cannot be read.
async fn keep_reading(store: &Store, samples: &[RequestedSample], object_bytes: u64, read: &AtomicUsize) {
    let read_one = |index: usize| {
        let (store, asked) = (store.clone(), samples.get(index).cloned());
        async move {
            let sample = asked?.sample;
            store.read_sample(&sample, object_bytes).await.ok()
        }
    };
    let objects = stream::iter((0..samples.len()).cycle())
        .map(read_one)
        .buffer_unordered(READS_AT_ONCE)
        .take_while(|object| std::future::ready(object.is_some()));
    let count = |_| {
        read.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    };
    objects.for_each(count).await;
}

/// Seconds that one read takes. Of every figure the least: whatever else goes on in a machine only adds to it.
fn per_read(turns: &[Turn]) -> f64 {
    let least = |values: &mut dyn Iterator<Item = f64>| values.min_by(f64::total_cmp).unwrap_or(0.0);
    let alone = least(&mut turns.iter().map(|turn| turn.alone));
    let read = turns.iter().filter(|turn| turn.reads > 0);
    least(&mut read.map(|turn| (turn.beside - alone) / turn.reads as f64)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::{BoxFuture, Precision, SampleRef};
    use futures::FutureExt;

    /// Counts batches; each takes a few turns of the scheduler, that reads come in between, and those after so many never end.
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

    /// What reading `keys` costs, and the batches submitted for that, of which `end` end; one object is there, 'a'.
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
        let beside = Beside {
            executor: &executor,
            stage,
            rows: &rows,
            lanes: 1,
            seconds_per_sample: SPAN / 2.0 / 50.0,
            read_seconds: 1.0,
        };
        assert_eq!(beside.extent().unwrap(), (2, 50));
        let sample = |key: &&str| RequestedSample {
            position: 0,
            sample: SampleRef::new(*key),
        };
        let samples: Vec<RequestedSample> = keys.iter().map(sample).collect();
        let cost = beside.cost(&store, &samples, 1000).await.unwrap();
        (cost, fake.submitted.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn every_turn_computes_twice() {
        let (cost, batches) = cost(&["a"], usize::MAX).await;
        assert!((0.0..=1.0).contains(&cost), "{cost}");
        assert_eq!(batches, 1 + 2 * TURNS * 50);
    }

    #[tokio::test]
    async fn what_cannot_be_read_ends_it() {
        for keys in [&[][..], &["b"]] {
            // The batch beside the first reads never ends: only the reads do.
            let alone = 1 + 50;
            let (cost, batches) = cost(keys, alone).await;
            assert_eq!(cost, 0.0);
            assert_eq!(batches, alone + 1);
        }
    }

    #[test]
    fn noise_only_adds() {
        let turn = |alone, beside, reads| Turn { alone, beside, reads };
        let quiet = turn(1.0, 2.0, 10);
        assert!((per_read(&[quiet]) - 0.1).abs() < 1e-9);
        let turns = [turn(1.0, 9.0, 10), quiet, turn(5.0, 2.5, 10), turn(1.0, 1.0, 0)];
        assert!((per_read(&turns) - 0.1).abs() < 1e-9);
        assert_eq!(per_read(&[turn(1.1, 1.0, 10)]), 0.0);
        assert_eq!(per_read(&[]), 0.0);
    }
}
