//! Policies for choosing a split: the planner's own policy and published rules for comparison.

use crate::candidate::Ranked;
use crate::text::suggestion;
use crate::ties;
use crate::{PlanError, Workload};
use frostline_graph::{GraphError, Network, list_first};
use frostline_job::{Objective, Policy, RULES};
use frostline_wire::Split;
use std::cmp::Ordering;

/// Number of images used by HAPI's first rule, independent of the job's batch size (versions 1 and 2 of the
/// authors' client).
const HAPI_IMAGES: f64 = 2500.0;

/// Costs within this factor of the minimum are considered equal. The measurement error is larger, but it
/// affects all candidates in the same way: the price for the trainer's time does not depend on the split.
const SAME_COST: f64 = 1.01;

/// Explains why `policy` does not match any of `splits` and suggests alternatives.
pub(crate) fn no_match_reason<'a>(policy: &Policy, splits: impl IntoIterator<Item = &'a Split>) -> String {
    let splits: Vec<String> = splits.into_iter().map(Split::to_string).collect();
    if splits.is_empty() {
        return "the list of candidates is empty".to_owned();
    }
    if *policy == Policy::HapiSize {
        return "the rule compares cuts with stored objects; add 'none' to the candidates, or choose a different rule"
            .to_owned();
    }
    let names = RULES.into_iter().chain(splits.iter().map(String::as_str));
    let meant = suggestion(&policy.to_string(), names);
    let splits: Vec<&str> = splits.iter().map(String::as_str).collect();
    format!(
        "{meant}available rules: {}; candidates: {}",
        RULES.join(", "),
        list_first(&splits)
    )
}

/// Resolves the cut in `policy` to the name of the tensor in `network`. Other policies are returned
/// unchanged.
///
/// # Errors
/// Returns [`PlanError::Policy`] if the name is neither a rule nor a cut, and [`PlanError::Graph`] if it is
/// ambiguous.
pub fn resolve_cut(policy: &Policy, network: &Network) -> Result<Policy, PlanError> {
    let Policy::Fixed(Split::Cut(name)) = policy else {
        return Ok(policy.clone());
    };
    match network.named(name) {
        Ok(cut) => Ok(Policy::Fixed(Split::Cut(cut.name.clone()))),
        Err(GraphError::UnknownCut { .. }) => {
            let cuts = network
                .cuts
                .iter()
                .map(|cut| Split::Cut(network.title(cut).to_owned()));
            Err(PlanError::Policy {
                policy: policy.to_string(),
                why: no_match_reason(policy, &cuts.collect::<Vec<_>>()),
            })
        }
        Err(several) => Err(several.into()),
    }
}

/// Returns the index of the candidate that `policy` chooses, or `None` if there is no suitable candidate.
pub(crate) fn choose(policy: &Policy, candidates: &[Ranked], workload: &Workload) -> Option<usize> {
    let freeze = candidates.len().checked_sub(1)?;
    match policy {
        Policy::Auto => match workload.cost.objective {
            Objective::Time => robust(candidates, workload),
            Objective::Cost => cheapest(candidates, workload),
        },
        Policy::Freeze => Some(freeze),
        Policy::HapiSize => hapi_size(candidates, workload).map(|cut| cut.unwrap_or(freeze)),
        Policy::HapiTime => index_of_min(candidates, |_, ranked| [hapi_seconds(ranked, workload), 0.0]),
        Policy::Fixed(split) => candidates
            .iter()
            .position(|ranked| ranked.candidate.split == *split),
    }
}

/// Chooses the candidate with the smallest worst-case loss among the candidates that are close to the minimum
/// time. Ties are resolved by the predicted time.
fn robust(candidates: &[Ranked], workload: &Workload) -> Option<usize> {
    let regrets = ties::regrets(candidates, workload);
    index_of_min(candidates, |index, ranked| {
        [
            regrets.get(index).copied().unwrap_or(f64::INFINITY),
            ranked.prediction.total_seconds,
        ]
    })
}

/// Chooses the shortest job among the candidates with approximately the minimum cost.
fn cheapest(candidates: &[Ranked], workload: &Workload) -> Option<usize> {
    let costs = candidates
        .iter()
        .map(|ranked| ranked.candidate.objective(workload));
    let most = SAME_COST * costs.fold(f64::INFINITY, f64::min);
    index_of_min(candidates, |_, ranked| {
        let cost = ranked.candidate.objective(workload);
        let over = if cost <= most { 0.0 } else { cost };
        [over, ranked.prediction.total_seconds]
    })
}

/// Returns the index of the candidate with the smallest `key`. Ties are resolved by the bytes per sample and
/// then by the order of the candidates.
fn index_of_min(candidates: &[Ranked], key: impl Fn(usize, &Ranked) -> [f64; 2]) -> Option<usize> {
    let keys = candidates.iter().enumerate().map(|(index, ranked)| {
        let [first, second] = key(index, ranked);
        (index, [first, second, ranked.candidate.bytes_per_sample])
    });
    let least = keys.min_by(|(_, left), (_, right)| {
        let each = left.iter().zip(right).map(|(left, right)| left.total_cmp(right));
        each.fold(Ordering::Equal, Ordering::then)
    });
    least.map(|(index, _)| index)
}

/// Implements versions 1 and 2 of HAPI's public client. Returns `Some(None)` if no cut fits, and `None` if
/// the candidates do not include `none`, because the rule compares with the size of the stored objects.
fn hapi_size(candidates: &[Ranked], workload: &Workload) -> Option<Option<usize>> {
    let stored = candidates
        .iter()
        .find(|ranked| ranked.candidate.split == Split::None)?;
    let stored = stored.candidate.bytes_per_sample * HAPI_IMAGES;
    Some(candidates.iter().position(|ranked| {
        let cut = matches!(ranked.candidate.split, Split::Cut(_));
        let bytes = ranked.candidate.bytes_per_sample * HAPI_IMAGES;
        cut && bytes < stored && bytes < workload.link_bytes_per_second
    }))
}

/// Implements the prediction of version 3, `T_stream + (I - 1) * max(T_stream, T_train) + T_train`. The
/// serial part is omitted because it cannot be determined for other machines.
fn hapi_seconds(ranked: &Ranked, workload: &Workload) -> f64 {
    let stages = &ranked.candidate.stages;
    let stream = stages.host_seconds + stages.link_seconds;
    let train = stages.trainer_seconds;
    let others = workload.iterations.saturating_sub(1) as f64;
    stream.max(train).mul_add(others, stream + train)
}
