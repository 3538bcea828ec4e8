/// What memory is reserved for, in the order in which work goes on.
///
/// Who holds memory of one kind may wait for that of a later one, never for that of the same or an earlier one; and each kind leaves
/// untouched what the later ones need for one job. So somebody can always go on, and whoever waits is served in the end.
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
    /// What is kept because it may be asked for again. It goes when others lack memory, and nobody waits for it.
    Kept,
    /// A request being read, and what is held for it until it ends.
    Request,
    /// What a guest's call and the answer made of it take.
    Grant,
    /// An object that was read, until it is decoded or sent.
    Read,
    /// An image while it is decoded.
    Decode,
    /// Sessions and runs of a lane. Lanes do not wait here: the scheduler of the device asks for what there is.
    Lane,
}

impl Kind {
    /// How many there are.
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
