//! Background tasks that follow the changes of other hosts and compact the log.

use crate::journal::Journal;
use frostline_primitives::Backoff;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval at which the host checks for new changes. All hosts should see a change within three seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the host checks for newer snapshots and compacts the log if necessary.
const REVIEW: Duration = Duration::from_secs(60);

/// Maximum backoff while the store cannot be read.
const LONGEST: Duration = Duration::from_secs(16);

impl Journal {
    /// Follows the changes of other hosts until `stop` is cancelled. While the state cannot be read, the host
    /// continues with the last known state.
    pub async fn follow(&self, stop: CancellationToken) {
        let mut pause = POLL_INTERVAL;
        let mut review = Instant::now() + REVIEW;
        let mut backoff = Backoff::new(POLL_INTERVAL, LONGEST);
        while tokio::time::timeout(pause, stop.cancelled()).await.is_err() {
            let far = Instant::now() >= review;
            let read = match far {
                true => self.review().await,
                false => self.catch_up().await,
            };
            match read {
                Ok(()) => {
                    if pause > POLL_INTERVAL {
                        tracing::info!("the host reached its state");
                    }
                    pause = POLL_INTERVAL;
                    backoff.reset();
                    if far {
                        review = Instant::now() + REVIEW;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the host's state; continuing with the last known state");
                    review = Instant::now();
                    pause = backoff.wait();
                }
            }
        }
    }

    /// Compacts the log until `stop` is cancelled. Failures are retried later, because a long log only delays the
    /// next start.
    pub async fn keep_compact(&self, stop: CancellationToken) {
        loop {
            let Some(compacted) = stop.run_until_cancelled(self.compact()).await else {
                return;
            };
            if let Err(error) = compacted {
                tracing::warn!(%error, "cannot compact the state log");
            }
            // Use a random interval, so that hosts started together do not compact at the same time.
            let pause = REVIEW.mul_f64(0.5 + fraction());
            if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
                return;
            }
        }
    }
}

/// Returns a random number between 0 and 1.
fn fraction() -> f64 {
    let mut random = [0_u8; 1];
    getrandom::fill(&mut random).map_or(0.5, |()| f64::from(random[0]) / f64::from(u8::MAX))
}
