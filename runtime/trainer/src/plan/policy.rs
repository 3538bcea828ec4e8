//! Rules that choose a split: ours, and those of others to compare with.

use super::text::few;
use super::ties;
use super::{Ranked, Workload};
use crate::TrainerError;
use frostline_graph::{GraphError, Network};
use frostline_wire::Split;
use std::cmp::Ordering;
use std::str::FromStr;

/// A rule that chooses a split.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Policy {
    /// The shortest predicted job; of those too near it to tell which is shorter, the one that loses least should a tier turn out slower
    /// than it was measured.
    #[default]
    Auto,
    /// The freeze cut: as many layers beside the data as may be.
    Freeze,
    /// HAPI's first rule: the earliest cut at which 2,500 images are smaller than the stored objects and than what the link moves in a
    /// second, else the freeze cut. Without `none` among the candidates nothing is known of the objects, and it chooses nothing.
    HapiSize,
    /// HAPI's later rule: the shortest job by its own formula, in which extraction and transfer follow each other.
    HapiTime,
    /// This split.
    Fixed(Split),
}

/// The rules by name, the two splits that every network has among them.
const RULES: [&str; 6] = ["auto", "freeze", "none", "input", "hapi-size", "hapi-time"];

/// Images by which HAPI's first rule compares sizes, whatever the job's batch is (versions 1 and 2 of its authors' client).
const HAPI_IMAGES: f64 = 2500.0;

/// A policy no one knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a split has a name: write {}, or a cut of the model", RULES.join(", "))]
pub struct ParsePolicyError;

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(name: &str) -> Result<Self, ParsePolicyError> {
        Ok(match name {
            "" => return Err(ParsePolicyError),
            "auto" => Self::Auto,
            "freeze" => Self::Freeze,
            "hapi-size" => Self::HapiSize,
            "hapi-time" => Self::HapiTime,
            split => Self::Fixed(Split::from(split)),
        })
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Freeze => f.write_str("freeze"),
            Self::HapiSize => f.write_str("hapi-size"),
            Self::HapiTime => f.write_str("hapi-time"),
            Self::Fixed(split) => write!(f, "{split}"),
        }
    }
}

/// Why `policy` chose nothing among `splits`, and what to do.
pub(crate) fn unfit<'a>(policy: &Policy, splits: impl IntoIterator<Item = &'a Split>) -> String {
    let splits: Vec<String> = splits.into_iter().map(Split::to_string).collect();
    if splits.is_empty() {
        return "there are no candidates".to_owned();
    }
    if *policy == Policy::HapiSize {
        return "it compares cuts with the stored objects, and the split 'none' is not among the candidates: let it be one, or take another \
                rule"
            .to_owned();
    }
    let names = RULES.into_iter().chain(splits.iter().map(String::as_str));
    let policy = policy.to_string();
    let meant = match frostline_graph::similar(&policy, names).as_slice() {
        [] => String::new(),
        similar => format!("did you mean {}? ", similar.join(" or ")),
    };
    let splits: Vec<&str> = splits.iter().map(String::as_str).collect();
    format!(
        "{meant}the rules are {}; the candidates are {}",
        RULES.join(", "),
        few(&splits)
    )
}

impl Policy {
    /// The same; a cut that a person named, by its tensor in `network`.
    ///
    /// # Errors
    /// [`TrainerError::Policy`] when it is no rule and names no cut, [`TrainerError::Graph`] when it names several.
    pub(crate) fn within(&self, network: &Network) -> Result<Self, TrainerError> {
        let Self::Fixed(Split::Cut(name)) = self else {
            return Ok(self.clone());
        };
        match network.named(name) {
            Ok(cut) => Ok(Self::Fixed(Split::Cut(cut.name.clone()))),
            Err(GraphError::UnknownCut { .. }) => {
                let cuts = network
                    .cuts
                    .iter()
                    .map(|cut| Split::Cut(network.title(cut).to_owned()));
                Err(TrainerError::Policy {
                    policy: self.to_string(),
                    why: unfit(self, &cuts.collect::<Vec<_>>()),
                })
            }
            Err(several) => Err(several.into()),
        }
    }

    /// The index of the candidate this rule takes. `None` without candidates, or when it names one that is not there.
    pub(super) fn choose(&self, candidates: &[Ranked], workload: &Workload) -> Option<usize> {
        let freeze = candidates.len().checked_sub(1)?;
        match self {
            Self::Auto => robust(candidates, workload),
            Self::Freeze => Some(freeze),
            Self::HapiSize => hapi_size(candidates, workload).map(|cut| cut.unwrap_or(freeze)),
            Self::HapiTime => least(candidates, |_, ranked| [hapi_seconds(ranked, workload)]),
            Self::Fixed(split) => candidates
                .iter()
                .position(|ranked| ranked.candidate.split == *split),
        }
    }
}

/// The candidate that loses least in the worst case among those near the shortest; of equal ones the shortest.
fn robust(candidates: &[Ranked], workload: &Workload) -> Option<usize> {
    let regrets = ties::regrets(candidates, workload);
    let regret = |index: usize| regrets.get(index).copied().unwrap_or(f64::INFINITY);
    least(candidates, |index, ranked| {
        [regret(index), ranked.prediction.total_seconds]
    })
}

/// The candidate with the least of what `key` tells first, then second; of equal ones that with the fewest bytes, then the earlier.
fn least<const N: usize>(candidates: &[Ranked], key: impl Fn(usize, &Ranked) -> [f64; N]) -> Option<usize> {
    let keys = candidates.iter().enumerate().map(|(index, ranked)| {
        let bytes = ranked.candidate.bytes_per_sample;
        (index, key(index, ranked), bytes)
    });
    let compare = |left: &[f64; N], right: &[f64; N]| {
        let each = left.iter().zip(right).map(|(left, right)| left.total_cmp(right));
        each.fold(Ordering::Equal, Ordering::then)
    };
    let first =
        keys.min_by(|(_, left, few), (_, right, many)| compare(left, right).then(few.total_cmp(many)));
    first.map(|(index, ..)| index)
}

/// Versions 1 and 2 of HAPI's public client: the cut that fits, if one does. `None` without `none`, which it compares with.
fn hapi_size(candidates: &[Ranked], workload: &Workload) -> Option<Option<usize>> {
    let bytes = |ranked: &Ranked| ranked.candidate.bytes_per_sample * HAPI_IMAGES;
    let stored = candidates
        .iter()
        .find(|ranked| ranked.candidate.split == Split::None)
        .map(bytes)?;
    let small = |ranked: &Ranked| {
        let cut = matches!(ranked.candidate.split, Split::Cut(_));
        cut && bytes(ranked) < stored && bytes(ranked) < workload.link_bytes_per_second
    };
    Some(candidates.iter().position(small))
}

/// Version 3: `T_stream + (I - 1) * max(T_stream, T_train) + T_train`; its serial part is not known for others' machines.
fn hapi_seconds(ranked: &Ranked, workload: &Workload) -> f64 {
    let stages = &ranked.candidate.stages;
    let stream = stages.host_seconds + stages.link_seconds;
    let train = stages.trainer_seconds;
    let others = workload.iterations.saturating_sub(1) as f64;
    stream.max(train).mul_add(others, stream + train)
}
