use super::buffer::BatchBuffer;
use super::exchange::{Exchange, Memory};
use super::{Source, Transfer};
use crate::retry::RetryPolicy;
use crate::{ClientError, Hosts};
use frostline_images::DecodePool;
use frostline_tensor::{OpError, Tensor};
use frostline_wire::ObjectInfo;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Brings samples here, whatever it takes. Remembers from one call to the next how the hosts are doing; clones share that.
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
///     request_samples: 32,
/// };
/// let fetcher = Fetcher::new(8, DecodePool::start(4)?);
/// let fetched = fetcher.fetch(&hosts, source.into(), photos.iter().take(64).map(|(_, photo)| photo.into()).collect()).await?;
/// println!("{} of them worked: {:?}", fetched.kept.len(), fetched.rows.shape());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fetcher(Arc<Memory>);

/// Samples as they arrived.
pub struct Fetched {
    /// The samples that worked, in the order asked for, `f32`.
    pub rows: Tensor,
    /// The indices, among those asked for, of the samples that worked.
    pub kept: Vec<usize>,
    /// The others.
    pub bad: Vec<(usize, OpError)>,
    /// How they came.
    pub transfer: Transfer,
}

impl Fetcher {
    /// A fetcher with at most `open_requests` requests open at once at each host. `decoders` decode and normalize what comes as
    /// objects or pixels.
    pub fn new(open_requests: usize, decoders: DecodePool) -> Self {
        Self::with(open_requests, RetryPolicy::default(), decoders)
    }

    pub(crate) fn with(open_requests: usize, policy: RetryPolicy, decoders: DecodePool) -> Self {
        Self(Arc::new(Memory::new(open_requests, policy, decoders)))
    }

    /// From now on at most `requests` are open at once at the host with this address, and no more than ever before; those that are open
    /// stay so.
    pub fn allow(&self, host: &str, requests: usize) {
        self.0.windows.window_for(host).allow(requests);
    }

    /// Bytes of answers that did not end as they should.
    pub fn interrupted(&self) -> u64 {
        self.0.interrupted.load(Ordering::Relaxed)
    }

    /// Fetches `samples` from `source`: in requests of at most so many samples as it says, side by side, each object from the host it
    /// belongs to. What gets lost is asked for again, elsewhere where there are others. Holds one tensor, and of every open request one
    /// message ([`Source::batch_bytes`]). Dropping the future closes every request, and the hosts end the work.
    ///
    /// # Errors
    /// [`ClientError::Lost`], or the host's refusal.
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
        let finish = move || (buffer.finish(&kept), kept);
        let finished = self.0.decoders.run(finish).await;
        let (rows, kept) = finished.map_err(|error| preprocess(error.into()))?;
        Ok(Fetched {
            rows: rows.map_err(preprocess)?,
            kept,
            bad,
            transfer,
        })
    }
}

fn preprocess(source: OpError) -> ClientError {
    ClientError::Preprocess { source }
}
