use frostline_graph::onnx::NodeProto;
use frostline_graph::{Cut, Effort, GraphError, Model, Network};
use frostline_tensor::DType;
use std::collections::HashMap;

/// The most candidates of one network: HAPI's deepest networks have 22 blocks, and measuring takes time for each. Half would join
/// neighboring blocks of ResNet50, double would only tell cuts apart that cost the same.
pub(crate) const MOST_CANDIDATES: usize = 24;

/// The longest chain of cheap operators that is followed.
const CHAIN: usize = 8;

/// The cuts up to `freeze` that are worth considering, in the order of execution: a cut is left out when the next one is as small or
/// smaller and only cheap operators lie between, because it then costs more bytes and saves nothing. Of what is left, at most
/// 24. The freeze cut is always the last.
///
/// # Errors
/// [`GraphError::UnknownCut`] when the network has no cut of that name.
pub fn candidates(model: &Model, network: &Network, freeze: &str) -> Result<Vec<Cut>, GraphError> {
    if freeze != network.input.name {
        network.cut(freeze)?;
    }
    let end = network.cuts.iter().position(|cut| cut.name == freeze);
    let cuts = network
        .cuts
        .get(..end.map_or(0, |end| end + 1))
        .unwrap_or_default();
    let producers = producers(model);
    let is_beaten = |index: usize, cut: &Cut| {
        cuts.get(index + 1).is_some_and(|next| {
            let same = next.bytes_per_sample == cut.bytes_per_sample;
            next.bytes_per_sample <= cut.bytes_per_sample && is_cheap(&producers, &cut.name, &next.name, same)
        })
    };
    let mut kept: Vec<Cut> = cuts
        .iter()
        .enumerate()
        .filter(|(index, cut)| cut.dtype == DType::F32 && !is_beaten(*index, cut))
        .map(|(_, cut)| cut.clone())
        .collect();
    while kept.len() > MOST_CANDIDATES
        && let Some(index) = least_worth(&kept)
    {
        kept.remove(index);
    }
    Ok(kept)
}

fn producers(model: &Model) -> HashMap<&str, &NodeProto> {
    model
        .nodes()
        .iter()
        .flat_map(|node| node.output.iter().map(move |name| (name.as_str(), node)))
        .collect()
}

/// Whether nothing but cheap operators lead from one cut to the next.
fn is_cheap(producers: &HashMap<&str, &NodeProto>, from: &str, to: &str, same_size: bool) -> bool {
    let mut name = to;
    for _ in 0..CHAIN {
        if name == from {
            return true;
        }
        let Some(node) = producers.get(name) else {
            return false;
        };
        // Pools are cheap only where they leave nothing smaller behind: AlexNet's first pools take a tenth of a prefix.
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

/// The cut that lies closest behind the one before it without being smaller; where every cut is smaller than the one before, the
/// closest of all. Never the last.
fn least_worth(cuts: &[Cut]) -> Option<usize> {
    let inner = 1..cuts.len().checked_sub(1)?;
    let gap = |index: usize| {
        let (before, cut) = (cuts.get(index.checked_sub(1)?)?, cuts.get(index)?);
        let smaller = cut.bytes_per_sample < before.bytes_per_sample;
        Some((smaller, cut.compute_share - before.compute_share))
    };
    let gaps = inner.filter_map(|index| gap(index).map(|gap| (index, gap)));
    gaps.min_by(|(_, left), (_, right)| left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)))
        .map(|(index, _)| index)
}
