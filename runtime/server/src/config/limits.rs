use frostline_graph::ModelLimits;
use frostline_images::DecodeLimits;
use std::time::Duration;

/// What a client may send and hold. Each default says why not half and why not double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one guest. The stock guest takes 60 KB and one with its own decoders some MB; compiling takes time in
    /// proportion, so 16 MiB is where an upload becomes a nuisance.
    pub guest_bytes: u64,
    /// Bytes of one model. The largest of the usual prefixes is VGG-19's at 80 MB, whole networks reach 575 MB; the model is
    /// held in memory while it is checked.
    pub model_bytes: u64,
    /// What a model may consist of, and what its values may take.
    pub model: ModelLimits,
    /// Bytes of all uploads being received: two of the largest models. They lie on disk until they are whole, then in memory while they
    /// are checked.
    pub upload_bytes: u64,
    /// Uploads that broke off and are kept to go on from: a few jobs' models; more are most likely given up.
    pub partials: usize,
    /// Bytes of these on disk: as many of the largest models as may be received at once, twice.
    pub partial_bytes: u64,
    /// How long they are kept: until a job that failed overnight is started again.
    pub partial_age: Duration,
    /// Bytes of a JSON request. 65,536 samples with keys of 100 bytes take 10 MB.
    pub request_bytes: usize,
    /// Samples of one extraction: a whole epoch of a small data set, while positions, keys and etags stay below 20 MB.
    pub samples: usize,
    /// Bytes of the `parameters` a request hands to its guest; a recipe takes 200.
    pub parameter_bytes: usize,
    /// Bytes of one object's key: S3's own limit.
    pub key_bytes: usize,
    /// Bytes of one object that is sent as it is. Camera raw files take 100 MB.
    pub object_bytes: u64,
    /// What an image may claim.
    pub decode: DecodeLimits,
    /// Objects of one page of a listing: object stores answer 1,000 at a time, 10,000 take 1 MB of JSON.
    pub page: usize,
    /// Versions of one guest or model that are kept: enough for jobs that still run on an older one.
    pub versions: usize,
    /// Bytes of what is known of one tenant's models, which every host on the state keeps in memory: a thousand models of 44 cuts take 5 MB.
    pub facts_bytes: u64,
    /// Names of guests, and of models. The index of them is kept in memory.
    pub names: usize,
    /// Connections at once, of which those that have shown no token, one tenant, or one address may have half each. A trainer needs one or
    /// two; each takes some 100 KB.
    pub connections: usize,
    /// Bytes of requests that an HTTP/2 connection may send before they are let in, one of HTTP/1.1 less: what the budget keeps for all
    /// connections together, whatever else it holds. 2 MiB send 160 Mbit/s over a link of 100 ms.
    pub window: u32,
    /// How long a connection may take to shake hands, and to send a request line and headers; and how long one that has shown no token may
    /// do nothing.
    pub header_time: Duration,
    /// How long an upload or a request may bring next to nothing, a client between two reads of an answer, and a tenant's connection
    /// between two requests. Who lets it go by is disconnected, which ends all that was done for them there.
    pub stall: Duration,
    /// Descriptions kept, so that a guest is asked once for a model and parameters.
    pub descriptions: usize,
    /// Bytes of prepared stages kept on disk: each takes up to twice its weights, the seven usual networks 3.5 GB.
    pub prepared_bytes: u64,
}

/// The most and the least of [`Limits::window`]; below 64 KiB, HTTP/2's own default, a frame of usual size would stand alone.
const LARGEST_WINDOW: u32 = 2 << 20;
const SMALLEST_WINDOW: u32 = 64 << 10;

/// The unit in which room for uploads is reserved, because a semaphore counts in 32 bits.
const UPLOAD_UNIT: u64 = 64 << 10;

/// How many units `bytes` of uploads take.
pub(crate) fn upload_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UPLOAD_UNIT)).unwrap_or(u32::MAX)
}

impl Limits {
    /// Bytes of uploads that one of several tenants may be sending: half of all, that nobody keeps the others from sending theirs; and
    /// never less than the largest upload.
    pub(crate) fn tenant_upload_bytes(&self) -> u64 {
        let largest = self.model_bytes.max(self.guest_bytes);
        (self.upload_bytes / 2).max(largest)
    }
}

impl Limits {
    /// The window with which all connections together take so many bytes, if it is one.
    pub(super) fn window_of(&self, bytes: u64) -> u32 {
        let each = bytes / (self.connections as u64).max(1);
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        each.clamp(SMALLEST_WINDOW, LARGEST_WINDOW)
    }

    /// Bytes that all connections together may have sent before they are let in.
    pub(crate) fn windows(&self) -> u64 {
        u64::from(self.window).saturating_mul(self.connections as u64)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            guest_bytes: 16 << 20,
            model_bytes: 1 << 30,
            model: ModelLimits::default(),
            upload_bytes: 2 << 30,
            partials: 16,
            partial_bytes: 4 << 30,
            partial_age: Duration::from_secs(24 * 3600),
            request_bytes: 16 << 20,
            samples: 65_536,
            parameter_bytes: 64 << 10,
            key_bytes: 1024,
            object_bytes: 256 << 20,
            decode: DecodeLimits::default(),
            page: 10_000,
            versions: 8,
            facts_bytes: 16 << 20,
            names: 1000,
            connections: 256,
            window: LARGEST_WINDOW,
            header_time: Duration::from_secs(15),
            stall: Duration::from_secs(60),
            descriptions: 256,
            prepared_bytes: 16 << 30,
        }
    }
}
