//! Rules that choose a split: ours, and those of others to compare with.

use super::{Ranked, Workload};
use frostline_wire::Split;
use std::cmp::Ordering;
use std::str::FromStr;

/// A rule that chooses a split.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Policy {
    /// The shortest predicted job.
    #[default]
    Auto,
    /// The freeze cut: as many layers beside the data as may be.
    Freeze,
    /// HAPI's first rule: the earliest cut whose batch is smaller than the stored objects and than what the link moves in a second,
    /// else the freeze cut.
    HapiSize,
    /// HAPI's later rule: the shortest job by its own formula, in which extraction and transfer follow each other.
    HapiTime,
    /// This split.
    Fixed(Split),
}

/// A policy no one knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a split has a name: write auto, freeze, none, input, hapi-size, hapi-time, or a cut of the model")]
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

impl Policy {
    /// The index of the candidate this rule takes. `None` without candidates, or when it names one that is not there.
    pub(super) fn choose(&self, candidates: &[Ranked], workload: &Workload) -> Option<usize> {
        let freeze = candidates.len().checked_sub(1)?;
        match self {
            Self::Auto => least(candidates, |ranked| ranked.prediction.total_seconds),
            Self::Freeze => Some(freeze),
            Self::HapiSize => Some(hapi_size(candidates, workload).unwrap_or(freeze)),
            Self::HapiTime => least(candidates, |ranked| hapi_seconds(ranked, workload)),
            Self::Fixed(split) => candidates
                .iter()
                .position(|ranked| ranked.candidate.split == *split),
        }
    }
}

/// The candidate with the least of `seconds`; of equal ones that with the fewest bytes, then the earlier.
fn least(candidates: &[Ranked], seconds: impl Fn(&Ranked) -> f64) -> Option<usize> {
    let compare = |left: &Ranked, right: &Ranked| -> Ordering {
        let bytes = |ranked: &Ranked| ranked.candidate.bytes_per_sample;
        seconds(left)
            .total_cmp(&seconds(right))
            .then(bytes(left).total_cmp(&bytes(right)))
    };
    candidates
        .iter()
        .enumerate()
        .min_by(|(_, left), (_, right)| compare(left, right))
        .map(|(index, _)| index)
}

/// Versions 1 and 2 of HAPI's public client.
fn hapi_size(candidates: &[Ranked], workload: &Workload) -> Option<usize> {
    let batch = workload.batch as f64;
    let bytes = |ranked: &Ranked| ranked.candidate.bytes_per_sample * batch;
    let stored = candidates
        .iter()
        .find(|ranked| ranked.candidate.split == Split::None)
        .map(bytes)?;
    let small = |ranked: &Ranked| {
        let cut = matches!(ranked.candidate.split, Split::Cut(_));
        cut && bytes(ranked) < stored && bytes(ranked) < workload.link_bytes_per_second
    };
    candidates.iter().position(small)
}

/// Version 3: `T_stream + (I - 1) * max(T_stream, T_train) + T_train`; its serial part is not known for others' machines.
fn hapi_seconds(ranked: &Ranked, workload: &Workload) -> f64 {
    let stages = &ranked.candidate.stages;
    let stream = stages.host_seconds + stages.link_seconds;
    let train = stages.trainer_seconds;
    let others = workload.iterations.saturating_sub(1) as f64;
    stream.max(train).mul_add(others, stream + train)
}
