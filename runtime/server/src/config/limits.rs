use frostline_graph::ModelLimits;
use frostline_images::DecodeLimits;
use std::time::Duration;

/// Limits for client requests and stored data. The fields explain the default values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a guest in bytes. The stock guest has 60 KB, and guests with a decoder have a few MB.
    /// Compile time is proportional to the size, so 16 MiB is where an upload starts to disturb others.
    pub guest_bytes: u64,
    /// Maximum size of a model in bytes. VGG-19 has the largest of the usual prefixes with 80 MB, and whole
    /// networks have up to 575 MB. A model is in memory during the check.
    pub model_bytes: u64,
    /// Limits on the operators and tensors of models.
    pub model: ModelLimits,
    /// Total bytes of uploads in progress. The default fits two models of the maximum size. An incomplete
    /// upload is on disk, and a complete one is loaded into memory for the check.
    pub upload_bytes: u64,
    /// Number of interrupted uploads that can be resumed. The default fits the uploads of several concurrent
    /// jobs. Older uploads have most likely been abandoned.
    pub partials: usize,
    /// Bytes of interrupted uploads on disk. The default is twice `upload_bytes`.
    pub partial_bytes: u64,
    /// Maximum age of an interrupted upload. The default of 24 hours covers a job that fails overnight and is
    /// restarted.
    pub partial_age: Duration,
    /// Maximum size of JSON requests in bytes. 65,536 samples with keys of 100 bytes need 10 MB.
    pub request_bytes: usize,
    /// Samples of one extraction. The default covers an epoch of a small data set while positions, keys and
    /// etags need less than 20 MB.
    pub samples: usize,
    /// Bytes of an object key. The default is the limit of S3.
    pub key_bytes: usize,
    /// Maximum bytes of an object that is sent without decoding. Raw files of cameras have up to 100 MB.
    pub object_bytes: u64,
    /// Limits on image dimensions and decoding memory.
    pub decode: DecodeLimits,
    /// Maximum page size of a listing in objects. Object stores return 1,000 per request, and 10,000 objects
    /// need 1 MB of JSON.
    pub page: usize,
    /// Time for which a removed tenant can be restored.
    pub removed_tenant: Duration,
    /// Number of stored versions per guest or model. The default leaves room for jobs that still use older
    /// versions.
    pub versions: usize,
    /// Bytes of model metadata per tenant, which every host with the same state holds in memory. The metadata
    /// of 1,000 models with 44 cuts needs 5 MB.
    pub facts_bytes: u64,
    /// Number of guest names per tenant, and the same number of model names. The index of names is in memory.
    pub names: usize,
    /// Number of concurrent connections. Connections without a token are limited to half of this number. The
    /// limit for an address is also half, and for a tenant three eighths. Trainers need one or two
    /// connections, and a connection uses 100 KB.
    pub connections: usize,
    /// Flow control window of HTTP/2 connections, in bytes. Received data in the windows is not reserved, so
    /// the memory budget leaves space for all connections. A window of 2 MiB allows 160 Mbit/s on a link with
    /// a latency of 100 ms. HTTP/1.1 connections need less.
    pub window: u32,
    /// Timeout for the TLS handshake and for a request line with headers. It is also the idle timeout for
    /// connections that have not sent a valid token.
    pub header_time: Duration,
    /// Time that a client may take for a body or an answer in addition to 1 s per 64 KiB, and timeout for idle
    /// connections of tenants. The host then disconnects the client and cancels the work for that connection.
    pub stall: Duration,
    /// Number of cached descriptions. With a cached description, the guest does not have to be asked again.
    pub descriptions: usize,
    /// Bytes of prepared stages on disk. A stage needs up to twice the size of the weights, and the seven
    /// usual networks need 3.5 GB.
    pub prepared_bytes: u64,
}

/// Bounds of [`Limits::window`]. The minimum is the default of HTTP/2, since a smaller window would hold a
/// single frame of usual size.
const LARGEST_WINDOW: u32 = 2 << 20;
const SMALLEST_WINDOW: u32 = 64 << 10;

/// Unit of upload reservations in bytes, because a semaphore has only 32 bits.
const UPLOAD_UNIT: u64 = 64 << 10;

/// Converts bytes to reservation units, rounded up.
pub(crate) fn upload_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UPLOAD_UNIT)).unwrap_or(u32::MAX)
}

impl Limits {
    /// Returns the maximum upload bytes in progress for a tenant. The value is half of the total, so that
    /// other tenants can always upload, and at least the size of the largest allowed upload.
    pub(crate) fn tenant_upload_bytes(&self) -> u64 {
        let largest = self.model_bytes.max(self.guest_bytes);
        (self.upload_bytes / 2).max(largest)
    }

    /// Returns the window size with which all connections together use `bytes`, within the bounds.
    pub(super) fn window_for(&self, bytes: u64) -> u32 {
        let each = bytes / (self.connections as u64).max(1);
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        each.clamp(SMALLEST_WINDOW, LARGEST_WINDOW)
    }

    /// Returns the bytes that all connection windows can hold together.
    pub(crate) fn total_window_bytes(&self) -> u64 {
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
            key_bytes: 1024,
            object_bytes: 256 << 20,
            decode: DecodeLimits::default(),
            page: 10_000,
            removed_tenant: Duration::from_secs(7 * 86_400),
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
