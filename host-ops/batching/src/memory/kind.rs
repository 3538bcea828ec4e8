/// Purpose of reserved memory. The variants are ordered by use within a job.
///
/// While holding memory, a job waits only for later kinds, never for the same or an earlier kind. Each kind
/// leaves enough memory free for a single use of the later kinds. Therefore some job can always proceed, and
/// every waiting request is served eventually.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::Display,
    strum::EnumCount,
    strum::EnumIter,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// Caches. Evicted when memory is short. Requests never wait for this kind.
    Cache,
    /// A request body being read, and data held until the request ends.
    Request,
    /// A guest call and the resulting answer.
    Grant,
    /// An object between reading and decoding or sending.
    Read,
    /// An image during decoding.
    Decode,
    /// Sessions and batches of a lane. Lanes do not wait in the ledger; the device scheduler reserves
    /// available memory immediately.
    Lane,
}
