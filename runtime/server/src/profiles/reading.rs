//! What reading objects takes from the computing beside it: nothing where a store answers from afar and cores are many, up to a store's
//! whole work where it runs on the host's own cores.

use crate::http::Refusal;
use frostline_objects::Store;
use frostline_tensor::{GraphExecutor, OpError, Stage, Tensor};
use frostline_wire::RequestedSample;
use futures::future::try_join_all;
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Objects read at a time, as extractions do.
const READS_AT_ONCE: usize = 8;

/// Seconds one measurement computes for, that the reads beside it are many.
const SPAN: f64 = 0.25;

/// Measurements with reads and without, in turns.
const TURNS: usize = 2;

/// Computing to measure beside.
pub(super) struct Beside<'a> {
    pub(super) executor: &'a Arc<dyn GraphExecutor>,
    pub(super) stage: Stage,
    /// Real samples.
    pub(super) rows: &'a Tensor,
    pub(super) lanes: usize,
    /// Seconds of the whole machine for one sample with all lanes busy.
    pub(super) seconds_per_sample: f64,
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
        let refused = |error: OpError| Refusal::from(error);
        self.compute(&batch, 1).await.map_err(refused)?;
        let (mut taken, mut count) = (0.0, 0);
        for _ in 0..TURNS {
            let alone = self.compute(&batch, passes).await.map_err(refused)?;
            let read = AtomicUsize::new(0);
            let read_one = |index: usize| {
                let (store, sample) = (store.clone(), samples.get(index).cloned());
                async move {
                    let sample = sample?;
                    let object = store.read_at_most(&sample.key, sample.etag.as_deref(), object_bytes);
                    object.await.ok()
                }
            };
            // An object that cannot be read ends the reads: nothing more is learnt then.
            let reads = stream::iter((0..samples.len()).cycle())
                .map(read_one)
                .buffer_unordered(READS_AT_ONCE)
                .take_while(|object| std::future::ready(object.is_some()))
                .for_each(|_| {
                    read.fetch_add(1, Ordering::Relaxed);
                    std::future::ready(())
                });
            let beside = tokio::select! {
                biased;
                seconds = self.compute(&batch, passes) => seconds.map_err(refused)?,
                () = reads => alone,
            };
            taken += beside - alone;
            count += read.into_inner();
        }
        Ok(per_sample(taken, count))
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

/// Noise may make computing beside reads the faster.
fn per_sample(taken: f64, count: usize) -> f64 {
    (taken / count.max(1) as f64).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::BoxFuture;
    use futures::FutureExt;
    use std::time::Duration;

    /// Computes by the clock: so long a batch, and as much longer as objects are being read.
    struct Fake;

    impl GraphExecutor for Fake {
        fn submit(&self, _: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>> {
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(batch)
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn reads_that_take_nothing_cost_next_to_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), [1; 100]).unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let executor: Arc<dyn GraphExecutor> = Arc::new(Fake);
        let rows = Tensor::f32([2, 1], vec![0.0; 2]).unwrap();
        let stage = Stage {
            model: String::new(),
            from: String::new(),
            to: String::new(),
        };
        let beside = Beside {
            executor: &executor,
            stage,
            rows: &rows,
            lanes: 1,
            seconds_per_sample: 0.0025,
        };
        assert_eq!(beside.extent().unwrap(), (2, 50));
        let sample = RequestedSample {
            position: 0,
            key: "a".to_owned(),
            etag: None,
        };
        let cost = beside.cost(&store, &[sample], 1000).await.unwrap();
        assert!((0.0..0.005).contains(&cost), "{cost}");
        assert!(beside.cost(&store, &[], 1000).await.unwrap() < 0.5);
    }

    #[test]
    fn noise_is_no_gain() {
        assert_eq!(per_sample(-0.1, 10), 0.0);
        assert_eq!(per_sample(0.5, 10), 0.05);
        assert_eq!(per_sample(0.0, 0), 0.0);
    }
}
