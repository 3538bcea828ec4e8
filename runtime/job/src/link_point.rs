use frostline_wire::Split;

/// The best split at a link rate, compared with the split `none`.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkPoint {
    /// Link rate in bytes per second.
    pub bytes_per_second: f64,
    /// The best split.
    pub split: Split,
    /// Duration of the job with `none` divided by the duration with this split.
    pub speed_up: f64,
}
