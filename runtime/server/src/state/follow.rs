//! A host keeps up with what others on its state change, and keeps the log short.

use super::journal::Journal;
use frostline_batching::Backoff;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often to ask for news. Changes are to be seen everywhere within three seconds.
const NEWS: Duration = Duration::from_secs(1);

/// How often to find out whether this host is too far behind for that, and whether the log has become long.
const REVIEW: Duration = Duration::from_secs(60);

/// The longest pause between tries while the store cannot be read.
const LONGEST: Duration = Duration::from_secs(16);

/// Follows the others until `stop`. While the state cannot be read the host goes on with what it knows.
pub(crate) async fn follow(journal: Arc<Journal>, stop: CancellationToken) {
    let (mut pause, mut review) = (NEWS, Instant::now() + REVIEW);
    let mut backoff = Backoff::new(NEWS, LONGEST);
    while tokio::time::timeout(pause, stop.cancelled()).await.is_err() {
        let far = Instant::now() >= review;
        let read = match far {
            true => journal.review().await,
            false => journal.catch_up().await,
        };
        match read {
            Ok(()) => {
                if pause > NEWS {
                    tracing::info!("the host's state is available again");
                }
                pause = NEWS;
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

/// Keeps the log short until `stop`. What fails is tried again later: a long log costs time at the next start, not correctness.
pub(crate) async fn compact(journal: Arc<Journal>, stop: CancellationToken) {
    loop {
        let compacted = tokio::select! {
            compacted = journal.compact() => compacted,
            () = stop.cancelled() => return,
        };
        if let Err(error) = compacted {
            tracing::warn!(%error, "cannot compact the state log");
        }
        // Hosts that were started together need not do it together.
        let pause = REVIEW.mul_f64(0.5 + fraction());
        if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

/// Anything from 0 to 1.
fn fraction() -> f64 {
    let mut random = [0_u8; 1];
    getrandom::fill(&mut random).map_or(0.5, |()| f64::from(random[0]) / f64::from(u8::MAX))
}
