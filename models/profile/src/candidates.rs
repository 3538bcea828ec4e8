use frostline_graph::{Cut, Effort, GraphError, Links, Model, Network};
use frostline_tensor::DType;

/// Maximum number of candidates per network. The deepest networks in the HAPI paper have 22 blocks, and
/// measurements are slower with more candidates. With half the number, neighboring blocks of ResNet50 would
/// be merged. Double the number would only distinguish cuts with equal cost.
pub(crate) const MOST_CANDIDATES: usize = 24;

/// Maximum number of consecutive cheap operators to follow.
const CHAIN: usize = 8;

/// Returns the relevant cuts up to `freeze` in execution order. A cut is omitted if the next one is not
/// larger and only cheap operators are between both, because it needs at least as many bytes and saves almost
/// no computation. Up to 24 cuts are returned, including the freeze cut at the end. The list is empty if
/// `freeze` is the network input.
///
/// # Errors
/// Returns [`GraphError::UnknownCut`] if the network has no cut named `freeze`.
pub fn candidates(model: &Model, network: &Network, freeze: &str) -> Result<Vec<Cut>, GraphError> {
    if freeze != network.input.name {
        network.cut(freeze)?;
    }
    let end = network.cuts.iter().position(|cut| cut.name == freeze);
    let cuts = network
        .cuts
        .get(..end.map_or(0, |end| end + 1))
        .unwrap_or_default();
    let links = Links::of_model(model);
    let is_beaten = |index: usize, cut: &Cut| {
        // Each tensor of a joint cut can be expensive.
        cuts.get(index + 1)
            .filter(|next| !next.is_joint())
            .is_some_and(|next| {
                let same = next.bytes_per_sample == cut.bytes_per_sample;
                next.bytes_per_sample <= cut.bytes_per_sample && is_cheap(&links, &cut.name, &next.name, same)
            })
    };
    let mut kept: Vec<Cut> = cuts
        .iter()
        .enumerate()
        .filter(|(index, cut)| cut.dtype == DType::F32 && !is_beaten(*index, cut))
        .map(|(_, cut)| cut.clone())
        .collect();
    while kept.len() > MOST_CANDIDATES
        && let Some(index) = least_useful(&kept)
    {
        kept.remove(index);
    }
    Ok(kept)
}

/// Returns true if only cheap operators are between both cuts.
fn is_cheap(links: &Links<'_>, from: &str, to: &str, same_size: bool) -> bool {
    let mut name = to;
    for _ in 0..CHAIN {
        if name == from {
            return true;
        }
        let Some((_, node)) = links.producer(name) else {
            return false;
        };
        // Pools are only cheap if they do not reduce the size. AlexNet's first pools need a tenth of the
        // prefix time.
        let cheap = match node.effort() {
            Effort::Passing => true,
            Effort::Pooling => same_size,
            Effort::Computing => false,
        };
        if !cheap {
            return false;
        }
        let Some(input) = node.input_name(0) else {
            return false;
        };
        name = input;
    }
    false
}

/// Returns the index of the cut to remove, except the first and last. Cuts without a size reduction are
/// preferred, and among these, the cut with the smallest increase in computation.
fn least_useful(cuts: &[Cut]) -> Option<usize> {
    let inner = 1..cuts.len().checked_sub(1)?;
    let gaps = inner.filter_map(|index| {
        let before = cuts.get(index.checked_sub(1)?)?;
        let cut = cuts.get(index)?;
        let smaller = cut.bytes_per_sample < before.bytes_per_sample;
        Some((index, (smaller, cut.compute_share - before.compute_share)))
    });
    gaps.min_by(|(_, left), (_, right)| left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)))
        .map(|(index, _)| index)
}
