//! A host, as a tenant uses it.

use crate::extraction::ExtractionStream;
use crate::link::{self, Link};
use crate::meter::ByteMeter;
use crate::pages::Pages;
use crate::retry::{Seen, sample_may_recover};
use crate::trace::Trace;
use crate::transport::{Address, Call, Transport, encode};
use crate::upload::{self, Upload, Uploaded};
use crate::{ClientError, Deadlines, Listing, Notices, Token, Trust, UploadKind, error};
use bytes::Bytes;
use frostline_wire::{
    Activation, ActivationBatch, ActivationReader, Description, DescriptionRequest, Encoding, ErrorClass,
    ExtractionRequest, GuestInfo, GuestLog, Layout, Load, ModelInfo, ObjectInfo, ObjectPage, Pixels, Profile,
    ProfileRequest, ROW_CHECKSUM, RequestedSample, RowFormat, RowValue, Split, Terms, XXH3, listing_order,
};
use http::Method;
use std::sync::Arc;

/// The most bytes that are read of objects as they are, together: the samples that a measurement takes, or a labels table.
const MOST_READ: u64 = 1 << 30;

/// The largest row that a host may say its guest makes: 268 million numbers.
const LARGEST_ROW: usize = 1 << 30;

/// Tells nobody.
pub(crate) fn unheard() -> Notices {
    Arc::new(|_| ())
}

/// A host, as a tenant uses it. Clones share its connections; nothing is sent before the first call. Every call fails with
/// [`ClientError`].
#[derive(Clone)]
pub struct HostClient {
    transport: Transport,
}

impl std::fmt::Debug for HostClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostClient")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl HostClient {
    /// A client of the host at `url`, such as `https://storage-1:8443`.
    ///
    /// # Errors
    /// [`ClientError::Address`] when that is no address of a host; [`ClientError::Authorities`] when it is an encrypted one and the
    /// system trusts nobody.
    pub fn new(url: &str, token: Option<Token>) -> Result<Self, ClientError> {
        Self::with(url, token, &Trust::System, Deadlines::default())
    }

    /// [`HostClient::new`] with other trust and deadlines than usual.
    ///
    /// # Errors
    /// As for [`HostClient::new`].
    pub fn with(
        url: &str,
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Self, ClientError> {
        let transport = Transport::new(Address::from_url(url), token, trust, deadlines)?;
        Ok(Self { transport })
    }

    /// The same, of a host whose certificate is to be that of `name`.
    pub(crate) fn verified_as(
        name: &str,
        url: &str,
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Self, ClientError> {
        let address = Address {
            verified_as: Some(name),
            ..Address::from_url(url)
        };
        let transport = Transport::new(address, token, trust, deadlines)?;
        Ok(Self { transport })
    }

    /// A client of a host inside this process, which messages call that.
    ///
    /// # Errors
    /// As for [`HostClient::new`].
    pub fn embedded(url: &str, token: Token) -> Result<Self, ClientError> {
        let address = Address {
            name: Some(error::EMBEDDED),
            ..Address::from_url(url)
        };
        let transport = Transport::new(address, Some(token), &Trust::System, Deadlines::default())?;
        Ok(Self { transport })
    }

    /// The host's address, or what it is called.
    pub fn url(&self) -> &str {
        &self.transport.peer().name
    }

    /// What the host has shown of itself until now.
    pub(crate) fn seen(&self) -> Seen {
        self.transport.seen()
    }

    /// Whether the host is reached over loopback, and so most likely is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        self.transport.is_loopback()
    }

    /// Body bytes received by this client and its clones, whatever became of them.
    pub fn bytes_received(&self) -> u64 {
        self.meter().bytes()
    }

    /// This client with a count of its own, which starts at zero; its bytes count here too.
    pub fn metered(&self) -> Self {
        self.counting_into(&self.meter().child())
    }

    pub(crate) fn meter(&self) -> &ByteMeter {
        self.transport.meter()
    }

    /// This client for calls of a trace, if there is one.
    pub(crate) fn traced(self, trace: Option<&Trace>) -> Self {
        Self {
            transport: self.transport.traced(trace),
        }
    }

    /// This client with another count.
    pub(crate) fn counting_into(&self, meter: &ByteMeter) -> Self {
        Self {
            transport: self.transport.counting_into(meter),
        }
    }

    /// How busy the host is.
    pub async fn load(&self) -> Result<Load, ClientError> {
        self.transport.get("/v1/load", &[]).await
    }

    /// What the host calls itself, which stays the same when its address does not; `None` from one of an earlier version.
    pub(crate) async fn name(&self) -> Result<Option<String>, ClientError> {
        Ok(self.load().await?.name)
    }

    /// Whether the host takes work: one that is being stopped refuses, but answers everything else as ever until its work is done.
    pub(crate) async fn ready(&self) -> Result<(), ClientError> {
        let answer = self.transport.send(Call::new(Method::GET, "/readyz")).await;
        // Where a proxy hides it, who asks for more will see.
        found_or_none(answer).map(drop)
    }

    /// Measures the link: how long a small answer takes, then the rate of answers of growing size until one takes long enough to
    /// tell, then whether several connections move more. Extractions use as many connections from then on. Takes some two
    /// thirds of a second.
    pub async fn probe(&self) -> Result<Link, ClientError> {
        link::probe(&self.transport).await
    }

    /// All samples under `root`, which is laid out as `layout`, by [`listing_order`].
    ///
    /// # Errors
    /// [`ClientError`]; `Protocol` for a listing that does not move on.
    pub async fn objects(&self, root: &str, layout: Layout) -> Result<Vec<ObjectInfo>, ClientError> {
        let mut objects = Vec::new();
        self.pages(root, layout, |page| objects.extend(page.objects))
            .await?;
        Ok(objects)
    }

    /// The bytes of `objects` under `root`, whole and in the versions that were listed; those that cannot be read are left out.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Interrupted`] for one that may be read the next time, or by another host.
    pub async fn read(&self, root: &str, objects: &[ObjectInfo]) -> Result<Vec<Bytes>, ClientError> {
        let bytes = objects
            .iter()
            .fold(0, |sum: u64, object| sum.saturating_add(object.size));
        let limit = RowFormat::Object.message_bytes(objects.len() as u64, bytes.min(MOST_READ));
        let request = ExtractionRequest {
            root: root.to_owned(),
            split: Split::None,
            guest: None,
            model: None,
            parameters: String::new(),
            encoding: Encoding::F32,
            terms: Terms::default(),
            view: None,
            samples: RequestedSample::in_order(objects),
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut answer = self.extract(&request, RowFormat::Object, limit).await?;
        let (mut read, peer) = (Vec::new(), self.transport.peer());
        while let Some(batches) = answer.next().await? {
            for row in batches.iter().flat_map(ActivationBatch::rows) {
                let row = row.map_err(|error| peer.interrupted(error))?;
                match row.outcome {
                    Ok(RowValue::Object(bytes)) => read.push(Bytes::copy_from_slice(bytes)),
                    Err(error) if error.host_caused || sample_may_recover(error.code) => {
                        return Err(peer.interrupted(error));
                    }
                    _ => {}
                }
            }
        }
        Ok(read)
    }

    /// The first `most` of [`HostClient::objects`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn first_objects(&self, root: &str, most: usize) -> Result<ObjectPage, ClientError> {
        let query = [("root", root), ("limit", &most.to_string())];
        self.transport.get("/v1/objects", &query).await
    }

    /// [`HostClient::objects`], packed as they come, and what is under the root besides that cannot be a sample.
    ///
    /// # Errors
    /// As [`HostClient::objects`].
    pub async fn listing(&self, root: &str, layout: Layout) -> Result<Listing, ClientError> {
        let mut listing = Listing::default();
        self.pages(root, layout, |page| listing.add_page(page)).await?;
        Ok(listing)
    }

    async fn pages(
        &self,
        root: &str,
        layout: Layout,
        mut take: impl FnMut(ObjectPage),
    ) -> Result<(), ClientError> {
        let mut pages = Pages::new(&self.transport, format!("the listing of '{root}'"));
        let mut after: Option<String> = None;
        loop {
            let mut query = vec![("root", root), ("layout", layout.as_ref())];
            query.extend(after.as_deref().map(|key| ("after", key)));
            let mut page: ObjectPage = pages.next("/v1/objects", &query).await?;
            let next = page.next.take();
            take(page);
            match next {
                None => return Ok(()),
                Some(next) if after.as_deref().is_some_and(|after| goes_back(after, &next)) => {
                    return Err(pages.refused(&format!("a page that goes back to '{next}'")));
                }
                next => after = next,
            }
        }
    }

    /// The tenant's guests.
    pub async fn guests(&self) -> Result<Vec<GuestInfo>, ClientError> {
        self.transport.get("/v1/guests", &[]).await
    }

    /// The guest `name`, `None` when there is none.
    pub async fn guest(&self, name: &str) -> Result<Option<GuestInfo>, ClientError> {
        found_or_none(self.transport.get(&path("guests", name), &[]).await)
    }

    /// What the guest `name` logged lately, after what an earlier answer calls `next`; 0 for all there is.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` with class `NotFound` where there is no such guest, and none was there lately; `Protocol` for a host
    /// that has more than any keeps, or says that there is more, but not where.
    pub async fn guest_log(&self, name: &str, after: u64) -> Result<GuestLog, ClientError> {
        let path = format!("{}/log", path("guests", name));
        let mut pages = Pages::new(&self.transport, format!("the log of the guest '{name}'"));
        let mut log = GuestLog {
            next: after,
            ..GuestLog::default()
        };
        loop {
            let before = log.next;
            let page: GuestLog = pages.next(&path, &[("after", &before.to_string())]).await?;
            log.lines.extend(page.lines);
            log.next = page.next;
            log.dropped |= page.dropped;
            if !page.more {
                return Ok(log);
            }
            if log.next <= before {
                return Err(pages.refused(&format!("line {before} followed by line {}", log.next)));
            }
        }
    }

    /// The models the tenant may use: its own, and those that all tenants share.
    pub async fn models(&self) -> Result<Vec<ModelInfo>, ClientError> {
        self.transport.get("/v1/models", &[]).await
    }

    /// Those of [`HostClient::models`] that have a version with this hash.
    pub(crate) async fn models_like(&self, sha256: &str) -> Result<Vec<ModelInfo>, ClientError> {
        self.transport.get("/v1/models", &[("sha256", sha256)]).await
    }

    /// The model `name`, `None` when there is none.
    pub async fn model(&self, name: &str) -> Result<Option<ModelInfo>, ClientError> {
        let info: Option<ModelInfo> = found_or_none(self.transport.get(&path("models", name), &[]).await)?;
        let mut cuts = info.iter().flat_map(|info| &info.cuts);
        match cuts.find(|cut| !holds_row(&cut.shape)) {
            Some(cut) => Err(self
                .transport
                .peer()
                .protocol(format!("rows of the shape {:?}", cut.shape))),
            None => Ok(info),
        }
    }

    /// Removes the guest `name` with all its versions; `false` when there is none.
    pub async fn remove_guest(&self, name: &str) -> Result<bool, ClientError> {
        let path = path("guests", name);
        let removed = self.transport.send(Call::new(Method::DELETE, &path)).await;
        Ok(found_or_none(removed)?.is_some())
    }

    /// Uploads a guest unless the host has these very bytes under this name.
    ///
    /// # Errors
    /// As [`HostClient::push`]; `Refused` with the host's reason when it is no component, or of another world.
    pub async fn push_guest(&self, name: &str, bytes: Bytes) -> Result<Uploaded, ClientError> {
        self.push(UploadKind::Guest, name, bytes, &unheard()).await
    }

    /// Uploads a model unless the host has these very bytes under this name.
    ///
    /// # Errors
    /// As [`HostClient::push`].
    pub async fn push_model(&self, name: &str, bytes: Bytes) -> Result<Uploaded, ClientError> {
        self.push(UploadKind::Model, name, bytes, &unheard()).await
    }

    /// Uploads a guest or a model unless the host has these very bytes under this name. The bytes are sent as the host takes them; an
    /// upload that breaks off, now or in an earlier job, goes on where it did. `notices` is told of progress and of repetitions.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Upload`] when it gets no further, however often it is tried.
    pub async fn push(
        &self,
        what: UploadKind,
        name: &str,
        bytes: Bytes,
        notices: &Notices,
    ) -> Result<Uploaded, ClientError> {
        let (kind, present) = match what {
            UploadKind::Guest => ("guests", self.guest(name).await?.map(|info| info.sha256)),
            UploadKind::Model => ("models", self.model(name).await?.map(|info| info.sha256)),
        };
        let upload = Upload {
            what,
            name,
            path: path(kind, name),
            bytes,
        };
        upload::push(&self.transport, upload, present, notices).await
    }

    /// What a guest does for a model.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` with class `Guest` when the guest fails.
    pub async fn describe(&self, request: &DescriptionRequest) -> Result<Description, ClientError> {
        let description: Description = self.transport.post("/v1/descriptions", request).await?;
        let unusable = |reason: String| self.transport.peer().protocol(reason);
        if let Pixels::Spec(spec) = &description.pixels {
            spec.check().map_err(|error| unusable(error.to_string()))?;
        }
        for cut in &description.cuts {
            if let Activation::Own(shape) = &cut.activation
                && !holds_row(shape)
            {
                return Err(unusable(format!("rows of the shape {shape:?}")));
            }
        }
        Ok(description)
    }

    /// What a model takes on the host: measured there now, or before if nothing has changed.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` when the guest makes its own input, or the host was too busy to be done in time.
    pub async fn profile(&self, request: &ProfileRequest) -> Result<Profile, ClientError> {
        self.transport.post("/v1/profiles", request).await
    }

    /// [`HostClient::profile`] for who can do without: no longer than [`Deadlines::profile`].
    ///
    /// # Errors
    /// As [`HostClient::profile`].
    pub async fn profile_soon(&self, request: &ProfileRequest) -> Result<Profile, ClientError> {
        let within = self.transport.peer().deadlines.profile;
        tokio::time::timeout(within, self.profile(request))
            .await
            .map_err(|_| self.transport.peer().silent("measuring the network", within))?
    }

    /// Opens an extraction; its rows are of `format`, and no batch of them is larger than `message_limit` bytes, compressed or
    /// decompressed.
    ///
    /// # Errors
    /// [`ClientError`]; a busy host is not asked again here.
    pub async fn extract(
        &self,
        request: &ExtractionRequest,
        format: RowFormat,
        message_limit: usize,
    ) -> Result<ExtractionStream, ClientError> {
        let checksums = [(ROW_CHECKSUM, XXH3.to_owned())];
        // A message has a row at least.
        let messages = request.samples.len() as u64 + 1;
        let call = Call {
            headers: &checksums,
            answer_limit: messages.saturating_mul(message_limit as u64),
            ..Call::new(Method::POST, "/v1/extractions").json(encode(request)?)
        };
        let connection = self.transport.next_connection();
        let answer = self.transport.send_over(connection, call).await?;
        let positions: Vec<u32> = request.samples.iter().map(|sample| sample.position).collect();
        let reader = ActivationReader::new(format, positions, message_limit);
        ExtractionStream::new(answer, reader.compressed(request.encoding.compression))
    }
}

fn path(kind: &str, name: &str) -> String {
    format!("/v1/{kind}/{name}")
}

fn found_or_none<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(info) => Ok(Some(info)),
        Err(ClientError::Refused {
            class: ErrorClass::NotFound,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a row of numbers of this shape is one that a job may have to hold.
fn holds_row(shape: &[usize]) -> bool {
    let numbers = shape
        .iter()
        .try_fold(1_usize, |product, side| product.checked_mul(*side));
    numbers.is_some_and(|numbers| numbers <= LARGEST_ROW / size_of::<f32>())
}

/// Whether a listing that goes on at `next` after `after` would never end.
fn goes_back(after: &str, next: &str) -> bool {
    listing_order(next) <= listing_order(after)
}
