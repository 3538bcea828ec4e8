//! A host from a tenant's point of view.

use crate::extraction::ExtractionStream;
use crate::link;
use crate::meter::ByteMeter;
use crate::pages::Pages;
use crate::retry::sample_may_recover;
use crate::trace::Trace;
use crate::transport::{Address, Call, Transport, encode};
use crate::upload::{self, Upload, Uploaded};
use crate::{ClientError, Deadlines, Listing, Notices, Token, Trust, UploadKind, error};
use bytes::Bytes;
use frostline_tensor::{OpError, Shape, without_secrets};
use frostline_wire::{
    Activation, ActivationBatch, ActivationReader, Description, DescriptionRequest, Encoding, ErrorClass,
    ExtractionRequest, GuestInfo, GuestLog, Layout, Link, Load, ModelInfo, ObjectInfo, ObjectPage, Pixels,
    Profile, ProfileRequest, RequestedSample, RowFormat, RowValue, Split, TensorInfo, Terms, listing_order,
};
use http::Method;
use std::sync::Arc;

/// Maximum total size in bytes of the objects in a [`HostClient::read`] call. Callers read samples for
/// measurements and labels tables.
const MOST_READ: u64 = 1 << 30;

/// Size limit in bytes for the rows that a host announces: 268 million `f32` values.
const LARGEST_ROW: usize = 1 << 30;

/// Discards all notices.
pub(crate) fn ignore_notices() -> Notices {
    Arc::new(|_| ())
}

/// A host from a tenant's point of view. Clones share connections. Requests are sent only by calls, not by
/// constructors. Every call fails with [`ClientError`].
#[derive(Clone)]
pub struct HostClient {
    pub(crate) transport: Transport,
}

impl std::fmt::Debug for HostClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostClient")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl HostClient {
    /// Creates a client of the host at `url` (`https://storage-1:8443`) with the system's trust store and
    /// default deadlines.
    ///
    /// # Errors
    /// Returns [`ClientError::Address`] if `url` is not a host's address, and [`ClientError::Authorities`] if
    /// TLS cannot be set up, for example because the system trusts no authority.
    pub fn new(url: &str, token: Option<Token>) -> Result<Self, ClientError> {
        Self::with(url, token, &Trust::default(), Deadlines::default())
    }

    /// [`HostClient::new`] with explicit trust and deadlines.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::new`].
    pub fn with(
        url: &str,
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Self, ClientError> {
        Self::at(Address::from_url(url), token, trust, deadlines)
    }

    /// [`HostClient::with`] for a host with this address.
    pub(crate) fn at(
        address: Address<'_>,
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Self, ClientError> {
        let transport = Transport::new(address, token, trust, deadlines)?;
        Ok(Self { transport })
    }

    /// Creates a client of a host inside this process. Error messages say "the embedded host" instead of the
    /// address.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::new`].
    pub fn embedded(url: &str, token: Token) -> Result<Self, ClientError> {
        let address = Address {
            name: Some(error::EMBEDDED),
            ..Address::from_url(url)
        };
        Self::at(address, Some(token), &Trust::default(), Deadlines::default())
    }

    /// The host's address, or "the embedded host" for a host inside this process.
    pub fn url(&self) -> &str {
        &self.transport.peer().name
    }

    /// Body bytes received by this client and all clones, including the bytes of failed calls.
    pub fn bytes_received(&self) -> u64 {
        self.meter().bytes()
    }

    pub(crate) fn meter(&self) -> &ByteMeter {
        self.transport.meter()
    }

    /// Returns this client with calls that belong to `trace`, if set.
    pub(crate) fn traced(self, trace: Option<&Trace>) -> Self {
        Self {
            transport: self.transport.traced(trace),
        }
    }

    /// Returns this client with its bytes counted in `meter`.
    pub(crate) fn counting_into(&self, meter: &ByteMeter) -> Self {
        Self {
            transport: self.transport.counting_into(meter),
        }
    }

    /// Returns the current load of the host.
    pub async fn load(&self) -> Result<Load, ClientError> {
        self.transport.get("/v1/load", &[]).await
    }

    /// Checks that the host accepts work. A draining host refuses this call, but answers all others until its
    /// work is done.
    pub(crate) async fn ready(&self) -> Result<(), ClientError> {
        let answer = self.transport.send(Call::new(Method::GET, "/readyz")).await;
        // A proxy may hide the endpoint (404). In that case a draining host is detected by a later call.
        found_or_none(answer).map(drop)
    }

    /// Measures the round trip of a small answer, then the rate of answers of growing size until the time is
    /// long enough to measure, then whether more connections are faster. Extractions use the resulting number
    /// of connections from then on. This takes about 0.7 seconds.
    pub async fn probe(&self) -> Result<Link, ClientError> {
        link::probe(&self.transport).await
    }

    /// Lists all samples under `root`, laid out as `layout`, ordered by [`listing_order`].
    ///
    /// # Errors
    /// Returns [`ClientError`]. The error is [`ClientError::Protocol`] if the listing does not advance or
    /// exceeds ten million objects or 2 GiB.
    pub async fn objects(&self, root: &str, layout: Layout) -> Result<Vec<ObjectInfo>, ClientError> {
        let listing = self.listing(root, layout).await?;
        Ok(listing.iter().map(|(_, object)| object.into()).collect())
    }

    /// Reads the bytes of `objects` under `root` in the listed versions. Returns a result for each object, in the
    /// order of `objects`.
    ///
    /// # Errors
    /// Returns [`ClientError`]. The error is [`ClientError::Interrupted`] if reading an object may succeed
    /// later or at another host.
    pub async fn read(
        &self,
        root: &str,
        objects: &[ObjectInfo],
    ) -> Result<Vec<Result<Bytes, OpError>>, ClientError> {
        let bytes = objects
            .iter()
            .fold(0, |sum: u64, object| sum.saturating_add(object.size));
        self.objects_or_digests(root, objects, bytes, false).await
    }

    /// Returns the XXH3 hash of each object under `root` in the listed version, in the order of `objects`. `None`
    /// if the object cannot be read.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::read`].
    pub async fn digests(&self, root: &str, objects: &[ObjectInfo]) -> Result<Vec<Option<u64>>, ClientError> {
        let bytes = 8 * objects.len() as u64;
        let rows = self.objects_or_digests(root, objects, bytes, true).await?;
        Ok(rows
            .into_iter()
            .map(|row| row.ok()?.as_ref().try_into().ok().map(u64::from_le_bytes))
            .collect())
    }

    /// Reads objects with `bytes` in total, or the hashes of objects.
    async fn objects_or_digests(
        &self,
        root: &str,
        objects: &[ObjectInfo],
        bytes: u64,
        digests: bool,
    ) -> Result<Vec<Result<Bytes, OpError>>, ClientError> {
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
            digests,
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut answer = self.extract(&request, RowFormat::Object, limit).await?;
        let mut read = vec![None; objects.len()];
        let peer = self.transport.peer();
        while let Some(batches) = answer.next().await? {
            for row in batches.iter().flat_map(ActivationBatch::rows) {
                let row = row.map_err(|error| peer.interrupted(error))?;
                let outcome = match row.outcome {
                    Ok(RowValue::Object(bytes)) => Ok(Bytes::copy_from_slice(bytes)),
                    Ok(_) => return Err(peer.protocol("an unexpected row")),
                    Err(error) if error.host_caused || sample_may_recover(error.code) => {
                        return Err(peer.interrupted(error));
                    }
                    Err(error) => Err(error),
                };
                if let Some(place) = read.get_mut(row.position as usize) {
                    *place = Some(outcome);
                }
            }
        }
        let all: Option<Vec<_>> = read.into_iter().collect();
        all.ok_or_else(|| peer.protocol("an answer without some of the objects"))
    }

    /// Returns the first page of [`HostClient::objects`] in the layout that the host detects, with up to
    /// `most` objects.
    ///
    /// # Errors
    /// Returns [`ClientError`].
    pub async fn first_objects(&self, root: &str, most: usize) -> Result<ObjectPage, ClientError> {
        let query = [("root", root), ("limit", &most.to_string())];
        self.transport.get("/v1/objects", &query).await
    }

    /// Returns [`HostClient::objects`] in packed form. The listing also contains invalid names under the
    /// root.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::objects`].
    pub async fn listing(&self, root: &str, layout: Layout) -> Result<Listing, ClientError> {
        let mut listing = Listing::default();
        let mut pages = Pages::new(
            &self.transport,
            format!("the listing of '{}'", without_secrets(root)),
        );
        let mut after: Option<String> = None;
        loop {
            let mut query = vec![("root", root), ("layout", layout.as_ref())];
            query.extend(after.as_deref().map(|key| ("after", key)));
            let mut page: ObjectPage = pages.next("/v1/objects", &query).await?;
            let next = page.next.take();
            listing.add_page(page);
            match next {
                None => return Ok(listing),
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

    /// Returns the guest `name`, or `None` if it does not exist.
    pub async fn guest(&self, name: &str) -> Result<Option<GuestInfo>, ClientError> {
        found_or_none(self.transport.get(&path(UploadKind::Guest, name), &[]).await)
    }

    /// Returns recent log lines of the guest `name`. `after` is `next` from a previous answer, or 0 for all
    /// lines that are still available.
    ///
    /// # Errors
    /// Returns [`ClientError`]. The error is `Refused` with class `NotFound` if the guest does not exist and
    /// did not exist recently, and `Protocol` if the host sends more lines than a host keeps, or announces
    /// more lines without advancing.
    pub async fn guest_log(&self, name: &str, after: u64) -> Result<GuestLog, ClientError> {
        let path = format!("{}/log", path(UploadKind::Guest, name));
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

    /// Lists the models that the tenant may use: private models and models shared with all tenants.
    pub async fn models(&self) -> Result<Vec<ModelInfo>, ClientError> {
        self.transport.get("/v1/models", &[]).await
    }

    /// Lists the models among [`HostClient::models`] that have a version with this hash.
    pub(crate) async fn models_like(&self, sha256: &str) -> Result<Vec<ModelInfo>, ClientError> {
        self.transport.get("/v1/models", &[("sha256", sha256)]).await
    }

    /// Returns the model `name`, or `None` if it does not exist.
    pub async fn model(&self, name: &str) -> Result<Option<ModelInfo>, ClientError> {
        let info: Option<ModelInfo> =
            found_or_none(self.transport.get(&path(UploadKind::Model, name), &[]).await)?;
        let mut cuts = info.iter().flat_map(|info| &info.cuts);
        match cuts.find(|cut| !holds_row(&cut.shape)) {
            Some(cut) => Err(self
                .transport
                .peer()
                .protocol(format!("rows of shape {:?} are too large", cut.shape))),
            None => Ok(info),
        }
    }

    /// Removes all versions of a guest or a model. Returns `false` if it does not exist, or if the operator shares the
    /// model with all tenants.
    pub async fn remove(&self, what: UploadKind, name: &str) -> Result<bool, ClientError> {
        let path = path(what, name);
        let removed = self.transport.send(Call::new(Method::DELETE, &path)).await;
        Ok(found_or_none(removed)?.is_some())
    }

    /// Uploads a guest, unless the host has the same bytes under this name.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::push`]; `Refused` with the host's reason if the bytes are not a
    /// component or belong to a different world.
    pub async fn push_guest(&self, name: &str, bytes: Bytes) -> Result<Uploaded, ClientError> {
        self.push(UploadKind::Guest, name, bytes, &ignore_notices()).await
    }

    /// Uploads a model, unless the host has the same bytes under this name.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::push`].
    pub async fn push_model(&self, name: &str, bytes: Bytes) -> Result<Uploaded, ClientError> {
        self.push(UploadKind::Model, name, bytes, &ignore_notices()).await
    }

    /// Uploads a guest or a model, unless the host has the same bytes under this name. Interrupted uploads
    /// are resumed, even by another job. `notices` receives progress and retries.
    ///
    /// # Errors
    /// Returns [`ClientError`]. The error is [`ClientError::Upload`] if the upload makes no progress despite
    /// retries.
    pub async fn push(
        &self,
        what: UploadKind,
        name: &str,
        bytes: Bytes,
        notices: &Notices,
    ) -> Result<Uploaded, ClientError> {
        let present = match what {
            UploadKind::Guest => self.guest(name).await?.map(|info| info.sha256),
            UploadKind::Model => self.model(name).await?.map(|info| info.sha256),
        };
        let upload = Upload {
            what,
            name,
            path: path(what, name),
            bytes,
        };
        upload::push(&self.transport, upload, present, notices).await
    }

    /// Describes the guest's support for a model.
    ///
    /// # Errors
    /// Returns [`ClientError`]. The error is `Refused` with class `Guest` if the guest fails.
    pub async fn describe(&self, request: &DescriptionRequest) -> Result<Description, ClientError> {
        let description: Description = self.transport.post("/v1/descriptions", request).await?;
        let peer = self.transport.peer();
        if let Pixels::Spec(spec) = &description.pixels {
            spec.check().map_err(|error| peer.protocol(error.to_string()))?;
        }
        for cut in &description.cuts {
            if let Activation::Custom(tensors) = &cut.activation
                && !TensorInfo::row_shape(tensors).is_some_and(|row| holds_row(row.dims()))
            {
                return Err(peer.protocol(format!("rows at cut {} exceed the maximum size", cut.name)));
            }
        }
        Ok(description)
    }

    /// Returns the cost of a model on the host. The host measures it now, or returns an earlier profile if
    /// nothing has changed.
    ///
    /// # Errors
    /// Returns [`ClientError`]; `Refused` if the guest makes its own input, or the host was too busy to
    /// finish in time.
    pub async fn profile(&self, request: &ProfileRequest) -> Result<Profile, ClientError> {
        self.transport.post("/v1/profiles", request).await
    }

    /// Like [`HostClient::profile`], with the timeout [`Deadlines::profile`]. Use this if the caller can
    /// continue without a profile.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::profile`], and [`ClientError::Silent`] on a timeout.
    pub async fn profile_soon(&self, request: &ProfileRequest) -> Result<Profile, ClientError> {
        let within = self.transport.peer().deadlines.profile;
        tokio::time::timeout(within, self.profile(request))
            .await
            .map_err(|_| self.transport.peer().silent("measuring the network", within))?
    }

    /// Opens an extraction with rows of `format`. Rejects batches larger than `message_limit` bytes,
    /// compressed or decompressed.
    ///
    /// # Errors
    /// Returns [`ClientError`]. A busy host is not asked again here.
    pub async fn extract(
        &self,
        request: &ExtractionRequest,
        format: RowFormat,
        message_limit: usize,
    ) -> Result<ExtractionStream, ClientError> {
        // Each message contains at least one row. The additional message covers the rest of the stream.
        let messages = request.samples.len() as u64 + 1;
        let call = Call {
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

fn path(what: UploadKind, name: &str) -> String {
    match what {
        UploadKind::Guest => format!("/v1/guests/{name}"),
        UploadKind::Model => format!("/v1/models/{name}"),
    }
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

/// True if a row of `f32` values with this shape fits [`LARGEST_ROW`].
fn holds_row(shape: &[usize]) -> bool {
    let bytes = Shape::new(shape).bytes(size_of::<f32>());
    bytes.is_ok_and(|bytes| bytes <= LARGEST_ROW)
}

/// True if a listing that continues at `next` after `after` would never end.
fn goes_back(after: &str, next: &str) -> bool {
    listing_order(next) <= listing_order(after)
}
