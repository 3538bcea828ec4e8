//! What both tiers share: the requests and answers of the HTTP interface, the Arrow frames activations travel in, and
//! errors as they cross the network.

mod description;
mod error;
mod messages;
mod split;

pub use description::{Activation, Description, Pixels, ServedCut};
pub use error::{ErrorBody, ErrorClass};
pub use messages::{
    CutInfo, DescriptionRequest, Encoding, ExtractionRequest, GuestInfo, Load, ModelInfo, ObjectInfo, ObjectPage,
    Pin, RequestedSample,
};
pub use split::Split;

/// The media type of an extraction's answer: an Arrow IPC stream.
pub const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";
