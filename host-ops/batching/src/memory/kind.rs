/// Purposes of reserved memory, in the order in which a job needs them.
///
/// A holder of one kind of memory may wait for a later kind, never for the same or an earlier one. Each kind
/// leaves enough free for one job of every later kind. Therefore a job can always proceed, and every waiting
/// request is served eventually.
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
    strum::EnumIter,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// Caches. They are evicted when memory is short, and no request waits for them.
    Kept,
    /// A request while it is read, and data held until the request ends.
    Request,
    /// Memory of a guest call and of the resulting answer.
    Grant,
    /// An object from reading until it is decoded or sent.
    Read,
    /// An image while it is decoded.
    Decode,
    /// Sessions and batches of a lane. Lanes do not wait in the ledger; the device scheduler reserves what is
    /// available.
    Lane,
}

impl Kind {
    /// Number of kinds.
    pub(crate) const COUNT: usize = 6;

    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Kept,
        Self::Request,
        Self::Grant,
        Self::Read,
        Self::Decode,
        Self::Lane,
    ];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
