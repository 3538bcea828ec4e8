/// How batches are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The most samples of one request; a batch is fetched by several at once.
    pub request_samples: usize,
    /// The most requests open at once.
    pub window: usize,
    /// Batches that are extracted while one trains; fewer where the memory does not hold them.
    pub ahead: usize,
}
