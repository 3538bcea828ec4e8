//! Types shared by host and client: requests and answers of the HTTP interface, Arrow frames with
//! activations, errors, and measurements such as [`Profile`] and [`Link`].

mod admin;
mod batch;
mod bounded;
mod buffers;
mod checksum;
mod column_group;
mod columns;
mod description;
mod encoding;
mod error;
mod frame_error;
mod frames;
mod guest_log;
mod jobs;
mod link;
mod load;
mod messages;
mod profile;
mod quota;
mod reader;
mod row_format;
mod row_value;
mod rows;
mod split;
mod trace;
mod units;
mod unpacked;
mod upload;
mod usage;
mod writer;

#[cfg(test)]
mod tests;

pub use admin::{
    Activity, AuditEntry, FailingRoot, GivenToken, GuestChange, HostInfo, MemoryActivity, NewTenant,
    NewToken, Removal, Revoked, TenantActivity, TenantChange, TenantInfo, TokenInfo, UploadInfo,
    UploadVersion,
};
pub use batch::{ActivationBatch, Row};
pub use checksum::object_digest;
pub use description::{Activation, Description, Pixels, ServedCut, TensorInfo};
pub use encoding::{Compression, Encoding, UnknownEncoding, Values};
pub use error::{ErrorBody, ErrorClass};
pub use frame_error::FrameError;
pub use frostline_tensor::{
    Augmentation, AugmentationError, Layout, ObjectInfo, ObjectPage, OutwardLinks, Precision, SampleRef,
    SkippedNames, Terms, TermsError, View, listing_order,
};
pub use guest_log::{GuestLine, GuestLog};
pub use jobs::{JobDetail, JobInfo, JobStage, StageSeconds};
pub use link::Link;
pub use load::{Load, MemoryLoad, StageLoad};
pub use messages::{
    CutInfo, DescriptionRequest, ExtractionRequest, GuestInfo, ModelInfo, RequestedSample, UploadRef,
};
pub use profile::{CutProfile, Encoded, Linear, Platform, Profile, ProfileRequest};
pub use quota::{Quota, QuotaChange, QuotaInfo, QuotaKey, QuotaRange, QuotaUnit, UNLIMITED, UnknownQuota};
pub use reader::ActivationReader;
pub use row_format::{RowFormat, TensorFormat};
pub use row_value::RowValue;
pub use split::Split;
pub use trace::{TRACEPARENT, TraceParent};
pub use units::{parse_seconds, parse_seconds_or_number, parse_size};
pub use upload::{REPR_DIGEST, UPLOAD_COMPLETE, UPLOAD_OFFSET, digest_of, repr_digest};
pub use usage::{DayUsage, Usage};
pub use writer::{ActivationWriter, RowFailure};

/// Name of the response header with the precision in which a host computes the layers of an extraction. Present
/// if the request permits less than full precision.
pub const COMPUTED_PRECISION: &str = "computed-precision";

/// Media type of Arrow IPC streams, used for extractions.
pub const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";
