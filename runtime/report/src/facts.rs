//! Timeline of a job in equal intervals: waiting, computing and received bytes.

use crate::markup::{percent, shortened};
use crate::run::{Journal, MomentKind, Step};

/// Number of intervals.
const PARTS: usize = 300;

/// A period of the job.
#[derive(Debug)]
pub(crate) struct Span {
    /// Start and end as fractions of the job's time.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Index of the color.
    pub(crate) place: usize,
    pub(crate) opacity: f64,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Timeline {
    /// Total time in seconds.
    pub(crate) seconds: f64,
    /// Waiting and computing time as fractions of each interval. The remaining time is measuring, validation
    /// and writing.
    pub(crate) waited: Vec<f64>,
    pub(crate) computed: Vec<f64>,
    /// Bytes received per second by training steps.
    pub(crate) bytes: Vec<f64>,
    /// Splits in use.
    pub(crate) splits: Vec<Span>,
    /// Fraction of cached features by epoch.
    pub(crate) cached_fraction: Vec<Span>,
    /// Times with unavailable hosts.
    pub(crate) down: Vec<Span>,
}

impl Timeline {
    /// Computes the timeline. Returns `None` if the job has no steps or no duration.
    pub(crate) fn from_journal(journal: &Journal) -> Option<Self> {
        let seconds = journal.duration;
        if journal.steps.sampled().is_empty() || seconds <= 0.0 {
            return None;
        }
        let part = seconds / PARTS as f64;
        let weight = journal.steps.stride() as f64;
        let mut line = Self {
            seconds,
            waited: vec![0.0; PARTS],
            computed: vec![0.0; PARTS],
            bytes: vec![0.0; PARTS],
            splits: splits(journal, seconds),
            cached_fraction: cached_spans(journal, seconds),
            down: down(journal, seconds),
        };
        for step in journal.steps.sampled() {
            let computing = step.at - f64::from(step.computed);
            let waiting = computing - f64::from(step.waited);
            spread(&mut line.waited, part, waiting, computing, weight);
            spread(&mut line.computed, part, computing, step.at, weight);
            let took = step.at - waiting;
            if took > 0.0 {
                let rate = f64::from(step.bytes) / took;
                spread(&mut line.bytes, part, waiting, step.at, rate * weight);
            }
        }
        for (waited, computed) in line.waited.iter_mut().zip(&mut line.computed) {
            // Limit the sum to 1, because each step represents omitted steps, and times may overlap.
            let sum = (*waited + *computed).max(1.0);
            (*waited, *computed) = (*waited / sum, *computed / sum);
        }
        Some(line)
    }
}

/// Adds the overlap of `from..to` with each interval as a fraction of the interval.
fn spread(parts: &mut [f64], part: f64, from: f64, to: f64, weight: f64) {
    let from = from.max(0.0) / part;
    let to = to.max(0.0) / part;
    let first = from as usize;
    let last = (to as usize).min(parts.len().saturating_sub(1));
    for (place, share) in parts.iter_mut().enumerate().take(last + 1).skip(first) {
        let begin = place as f64;
        *share += ((begin + 1.0).min(to) - begin.max(from)).max(0.0) * weight;
    }
}

fn splits(journal: &Journal, seconds: f64) -> Vec<Span> {
    let begin = |step: &Step| step.at - f64::from(step.computed) - f64::from(step.waited);
    let steps = journal.steps.sampled();
    let spans = steps.chunk_by(|left, right| left.split == right.split);
    let spans = spans.filter_map(|steps| {
        let first = steps.first()?;
        Some(Span {
            from: (begin(first) / seconds).clamp(0.0, 1.0),
            to: (steps.last()?.at / seconds).clamp(0.0, 1.0),
            place: usize::from(first.split),
            opacity: 1.0,
            text: format!("split {}", shortened(journal.steps.split(first), 80)),
        })
    });
    bounded(spans.collect())
}

/// Returns the epochs with the fraction of cached features. Empty if no features were cached.
fn cached_spans(journal: &Journal, seconds: f64) -> Vec<Span> {
    if journal.trained().all(|epoch| epoch.cached_rows == 0) {
        return Vec::new();
    }
    let spans = journal.epochs.iter().map(|epoch| {
        let trained = &epoch.trained;
        let rows = (trained.cached_rows + trained.fetched_rows).max(1);
        let share = trained.cached_rows as f64 / rows as f64;
        Span {
            from: ((epoch.at - trained.seconds) / seconds).clamp(0.0, 1.0),
            to: (epoch.at / seconds).clamp(0.0, 1.0),
            place: 3,
            opacity: share,
            text: format!("epoch {}: {} from the cache", trained.epoch, percent(share)),
        }
    });
    bounded(spans.collect())
}

fn down(journal: &Journal, seconds: f64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut count = 0_u32;
    let mut since = 0.0;
    let changes = journal.moments.iter().filter_map(|moment| match moment.kind {
        MomentKind::HostDown => Some((moment.at, true)),
        MomentKind::HostUp => Some((moment.at, false)),
        _ => None,
    });
    for (at, fell) in changes.chain([(journal.duration, false)]) {
        if count > 0 {
            spans.push(Span {
                from: since / seconds,
                to: at / seconds,
                place: 5,
                opacity: 1.0,
                text: format!("{count} hosts down"),
            });
        }
        count = if fell { count + 1 } else { count.saturating_sub(1) };
        since = at;
    }
    bounded(spans)
}

/// Limits the number of spans by removing the shortest ones.
fn bounded(mut spans: Vec<Span>) -> Vec<Span> {
    if spans.len() > PARTS {
        spans.sort_by(|left, right| (right.to - right.from).total_cmp(&(left.to - left.from)));
        spans.truncate(PARTS);
        spans.sort_by(|left, right| left.from.total_cmp(&right.from));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_spread_over_the_parts_it_lies_in() {
        let mut parts = vec![0.0; 4];
        spread(&mut parts, 2.0, 1.0, 5.0, 1.0);
        assert_eq!(parts, [0.5, 1.0, 0.5, 0.0]);
        spread(&mut parts, 2.0, 7.0, 99.0, 1.0);
        assert_eq!(parts, [0.5, 1.0, 0.5, 0.5]);
        spread(&mut parts, 2.0, -3.0, -1.0, 1.0);
        assert_eq!(parts, [0.5, 1.0, 0.5, 0.5]);
    }
}
