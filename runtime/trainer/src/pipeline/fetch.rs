use super::Source;
use super::buffer::BatchBuffer;
use super::exchange::Exchange;
use super::patience::Patience;
use super::window::Windows;
use crate::Sample;
use crate::retry::RetryPolicy;
use crate::{Events, Hosts, TrainerError};
use frostline_images::DecodePool;
use frostline_tensor::{OpError, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;

/// Fetches batches; remembers from one to the next how the hosts are doing.
pub(crate) struct Fetcher {
    pub(super) windows: Windows,
    pub(super) patience: Patience,
    pub(super) policy: RetryPolicy,
    pub(super) decoders: DecodePool,
    pub(super) events: Events,
    /// Bytes of answers that did not end as they should.
    pub(super) interrupted: AtomicU64,
}

/// A batch as it arrived.
pub(crate) struct Fetched {
    /// The samples that worked, in the order asked for, `f32`.
    pub(crate) rows: Tensor,
    /// The indices, among those asked for, of the samples that worked.
    pub(crate) kept: Vec<usize>,
    /// The others.
    pub(crate) bad: Vec<(usize, OpError)>,
    /// How they came.
    pub(crate) transfer: Transfer,
}

/// What bringing a batch here took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Transfer {
    /// Body bytes of all its answers.
    pub(crate) bytes: u64,
    /// Seconds its requests were open, added up.
    pub(crate) open_seconds: f64,
    /// Seconds of these that the host worked on them, as it says.
    pub(crate) host_seconds: f64,
}

impl Transfer {
    /// The share of the requests' time that went by on the host; `None` when it does not say.
    pub(crate) fn on_host(&self) -> Option<f64> {
        (self.host_seconds > 0.0 && self.open_seconds > 0.0).then(|| self.host_seconds / self.open_seconds)
    }

    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.open_seconds += other.open_seconds;
        self.host_seconds += other.host_seconds;
    }
}

impl Fetcher {
    /// A fetcher with at most `open_requests` requests open at once at each host.
    pub(crate) fn new(
        open_requests: usize,
        policy: RetryPolicy,
        decoders: DecodePool,
        events: Events,
    ) -> Self {
        Self {
            windows: Windows::new(open_requests),
            patience: Patience::new(policy.patience),
            policy,
            decoders,
            events,
            interrupted: AtomicU64::new(0),
        }
    }

    /// Bytes of answers that did not end as they should.
    pub(crate) fn interrupted(&self) -> u64 {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Fetches `samples` from `source`, whatever it takes within the policy.
    ///
    /// # Errors
    /// [`TrainerError::Lost`], or the host's refusal.
    pub(crate) async fn fetch(
        self: Arc<Self>,
        hosts: Hosts,
        source: Arc<Source>,
        samples: Arc<[Sample]>,
    ) -> Result<Fetched, TrainerError> {
        let buffer = Arc::new(BatchBuffer::new(samples.len(), &source.shape, source.pixels())?);
        let exchange = Arc::new(Exchange {
            fetcher: Arc::clone(&self),
            hosts: hosts.clone(),
            source,
            buffer: Arc::clone(&buffer),
        });
        let mut asking = JoinSet::new();
        for ask in exchange.begin(&samples)? {
            asking.spawn(Arc::clone(&exchange).ask(ask));
        }
        let (mut bad, mut transfer) = (Vec::new(), Transfer::default());
        while let Some(ended) = asking.join_next().await {
            let asked = ended.map_err(|_| TrainerError::Ended {
                part: "fetching task",
            })??;
            bad.extend(asked.bad);
            transfer.add(asked.transfer);
            for ask in asked.moved {
                asking.spawn(Arc::clone(&exchange).ask(ask));
            }
        }
        transfer.bytes = hosts.bytes_received();
        bad.sort_by_key(|(index, _)| *index);
        let kept =
            (0..samples.len()).filter(|index| bad.binary_search_by_key(index, |(bad, _)| *bad).is_err());
        let kept: Vec<usize> = kept.collect();
        let (rows, kept) = self
            .decoders
            .run(move || (buffer.finish(&kept), kept))
            .await
            .map_err(|error| TrainerError::Preprocess { source: error.into() })?;
        let rows = rows.map_err(|source| TrainerError::Preprocess { source })?;
        Ok(Fetched {
            rows,
            kept,
            bad,
            transfer,
        })
    }
}
