use super::buffer::BatchBuffer;
use super::exchange::{Exchange, FetcherState};
use super::straggler::StragglerDetector;
use super::window::HostWindows;
use super::{Source, Transfer};
use crate::retry::RetryPolicy;
use crate::{ClientError, Hosts};
use frostline_images::DecodePool;
use frostline_tensor::{OpError, Tensor};
use frostline_wire::ObjectInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fetches samples into a tensor and handles retries and failover. The fetcher tracks host performance across
/// calls. Clones share this state.
///
/// ```no_run
/// use frostline_client::{Fetcher, HostClient, Hosts, RowKind, Source, Token};
/// use frostline_images::DecodePool;
/// use frostline_tensor::PixelSpec;
/// use frostline_wire::{Encoding, Layout, Split, Terms};
///
/// # async fn pixels() -> Result<(), Box<dyn std::error::Error>> {
/// let client = HostClient::new("https://storage-1:8443", Some(Token::read("token".as_ref())?))?;
/// let hosts = Hosts::from(client);
/// let photos = hosts.listing("photos", Layout::Auto).await?;
/// let spec = PixelSpec::imagenet(224, 224);
/// let source = Source {
///     root: "photos".to_owned(),
///     split: Split::None,
///     encoding: Encoding::F32,
///     guest: None,
///     model: None,
///     parameters: String::new(),
///     terms: Terms::default(),
///     view: None,
///     rows: RowKind::Objects(spec),
///     shape: spec.sample_shape().to_vec(),
///     tensors: Vec::new(),
///     request_samples: 32,
/// };
/// let fetcher = Fetcher::new(8, DecodePool::start(4)?);
/// let fetched = fetcher.fetch(&hosts, source.into(), photos.iter().take(64).map(|(_, photo)| photo.into()).collect()).await?;
/// println!("{} of them worked: {:?}", fetched.indices.len(), fetched.rows.shape());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fetcher(Arc<FetcherState>);

/// Result of a fetch.
pub struct Fetched {
    /// The `f32` rows for the samples in `indices`.
    pub rows: Tensor,
    /// Ascending indices of the successfully fetched samples.
    pub indices: Vec<usize>,
    /// Index and error of each failed sample.
    pub bad: Vec<(usize, OpError)>,
    /// Bytes and time that the fetch needed.
    pub transfer: Transfer,
}

impl Fetcher {
    /// Creates a fetcher with up to `open_requests` requests in flight at each host. `decoders` decode
    /// objects and normalize pixels.
    pub fn new(open_requests: usize, decoders: DecodePool) -> Self {
        Self::with(open_requests, RetryPolicy::default(), decoders)
    }

    pub(crate) fn with(open_requests: usize, policy: RetryPolicy, decoders: DecodePool) -> Self {
        Self(Arc::new(FetcherState {
            windows: HostWindows::new(open_requests),
            stragglers: StragglerDetector::new(policy.stragglers),
            policy,
            decoders,
            interrupted: AtomicU64::new(0),
        }))
    }

    /// Limits the requests in flight at the host with the address `host`. The limit is clamped between 1 and
    /// the `open_requests` passed to [`Fetcher::new`]. Requests already in flight are not affected.
    pub fn allow(&self, host: &str, requests: usize) {
        self.0.windows.window_for(host).allow(requests);
    }

    /// Returns the number of body bytes in incomplete answers.
    pub fn interrupted(&self) -> u64 {
        self.0.interrupted.load(Ordering::Relaxed)
    }

    /// Fetches `samples` from `source` in parallel requests of up to [`Source::request_samples`] samples.
    /// Each object is requested from the host that [`place`](crate::place) selects. Missing rows are
    /// requested again, from another host if available. Memory use is one tensor plus one message per open
    /// request ([`Source::batch_bytes`]). Dropping the future closes all requests, and the hosts cancel the
    /// work.
    ///
    /// # Errors
    /// Returns [`ClientError::Lost`] if samples are missing after all retries, [`ClientError::Preprocess`] if
    /// the tensor cannot be built, or the refusal of a host.
    pub async fn fetch(
        &self,
        hosts: &Hosts,
        source: Arc<Source>,
        samples: Arc<[ObjectInfo]>,
    ) -> Result<Fetched, ClientError> {
        let hosts = hosts.metered();
        let buffer = BatchBuffer::new(samples.len(), &source.shape, source.pixels());
        let buffer = Arc::new(buffer.map_err(|error| preprocess(error.into()))?);
        let exchange = Arc::new(Exchange {
            memory: Arc::clone(&self.0),
            hosts: hosts.clone(),
            source,
            buffer: Arc::clone(&buffer),
        });
        let (mut bad, mut transfer) = exchange.run(&samples).await?;
        transfer.bytes = hosts.bytes_received();
        bad.sort_by_key(|(index, _)| *index);
        let kept =
            (0..samples.len()).filter(|index| bad.binary_search_by_key(index, |(bad, _)| *bad).is_err());
        let kept: Vec<usize> = kept.collect();
        let finished = self.0.decoders.run(move || (buffer.finish(&kept), kept)).await;
        let (rows, indices) = finished.map_err(|error| preprocess(error.into()))?;
        Ok(Fetched {
            rows: rows.map_err(preprocess)?,
            indices,
            bad,
            transfer,
        })
    }
}

fn preprocess(source: OpError) -> ClientError {
    ClientError::Preprocess { source }
}
