//! What a stage takes of a lane's memory, as its runs showed.

use super::lane::Running;
use super::work::MemoryEstimate;
use std::collections::BTreeMap;
use std::time::Duration;

/// Row counts that are told apart.
const POINTS: usize = 24;

/// The guess counts what a network's tensors take, an engine up to 4.4 times that.
const FIRST: u64 = 4;

/// Growth from a batch to twice the rows that is reserved for until it is known better: rows squared.
const UNKNOWN_GROWTH: f64 = 4.0;

/// The margin to begin with, and the least and most.
const MARGIN: (f64, f64, f64) = (0.1, 0.05, 1.0);

/// What narrows the margin with each run that kept within it.
const NARROWER: f64 = 0.99;

/// Memory is counted in pages, and in arenas of the allocator.
const SLACK: u64 = 1 << 20;

/// Aborts of a stage's runs that are put down to memory: each is followed by figures that are twice as large.
const ABORTS: u32 = 8;

/// Bytes of sessions and runs: measured per row count, a line in between and beyond, and a margin that misses widen.
#[derive(Debug, Clone)]
pub(super) struct Needs {
    guess: MemoryEstimate,
    opening: Option<u64>,
    session: Option<u64>,
    runs: BTreeMap<usize, u64>,
    margin: f64,
    /// Bytes that did not suffice for so many rows, until a run of as many is done.
    lacked: BTreeMap<usize, u64>,
    /// Rows that a run has at most after memory did not suffice, and how many runs kept to it since.
    cap: Option<(usize, u32)>,
    /// Rows of a run that all the memory there was, how much that was, and until when this counts.
    refused: Option<(usize, u64, Duration)>,
    aborts: u32,
}

/// Bytes that a run took, as closely as can be told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    pub(super) least: u64,
    pub(super) most: u64,
}

/// How good a prediction was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Missed {
    /// The difference as a part of what was measured, session included; `None` where the prediction was a first guess.
    pub(super) error: Option<f64>,
    /// Whether it took more than was reserved.
    pub(super) miss: bool,
}

impl Needs {
    pub(super) fn new(guess: MemoryEstimate) -> Self {
        Self {
            guess,
            opening: None,
            session: None,
            runs: BTreeMap::new(),
            margin: MARGIN.0,
            lacked: BTreeMap::new(),
            cap: None,
            refused: None,
            aborts: 0,
        }
    }

    pub(super) fn margin(&self) -> f64 {
        self.margin
    }

    /// Bytes of an open session.
    pub(super) fn session(&self) -> u64 {
        self.session.unwrap_or(self.guess.session)
    }

    /// Bytes of a run without its rows, and of each row.
    pub(super) fn line(&self) -> (u64, u64) {
        let ends = self.runs.first_key_value().zip(self.runs.last_key_value());
        let Some(((least, &low), (most, &high))) = ends else {
            return (self.guess.fixed, self.guess.per_row);
        };
        if least == most {
            let fixed = self.guess.fixed.min(low);
            return (fixed, (low - fixed) / *least as u64);
        }
        let per_row = high.saturating_sub(low) / (most - least) as u64;
        (low.saturating_sub(per_row.saturating_mul(*least as u64)), per_row)
    }

    /// What a run of `rows` is expected to take: nothing on top.
    pub(super) fn expected(&self, rows: usize) -> u64 {
        if let Some(bytes) = self.runs.get(&rows) {
            return *bytes;
        }
        let mut below = self.runs.range(..rows).rev();
        let mut above = self.runs.range(rows..);
        let (one, two) = match (below.next(), above.next()) {
            (Some(below), Some(above)) => (below, above),
            (Some(one), None) => match below.next() {
                Some(two) => (two, one),
                None => return self.on_the_line(rows),
            },
            (None, _) => return self.on_the_line(rows),
        };
        let (low, high) = (*one.1, *two.1);
        let slope = high.saturating_sub(low) as f64 / (two.0 - one.0) as f64;
        low.saturating_add((slope * (rows - one.0) as f64) as u64)
    }

    /// [`Self::expected`], but where a single row count was measured nobody knows what of it comes with the rows: what the guess says, which is
    /// too low.
    fn at_least(&self, rows: usize) -> u64 {
        match self.runs.last_key_value() {
            Some((known, bytes)) if self.runs.len() == 1 && rows > *known => {
                let more = self.guess.per_row.saturating_mul((rows - known) as u64);
                bytes.saturating_add(more)
            }
            _ => self.expected(rows),
        }
    }

    fn on_the_line(&self, rows: usize) -> u64 {
        let (fixed, per_row) = self.line();
        fixed.saturating_add(per_row.saturating_mul(rows as u64))
    }

    /// What to reserve for a run of `rows` with an open session.
    pub(super) fn run(&self, rows: usize) -> u64 {
        let expected = match self.runs.last_key_value() {
            None => {
                let rows = self.guess.per_row.saturating_mul(rows as u64);
                self.guess.fixed.saturating_add(rows.saturating_mul(FIRST))
            }
            Some((most, bytes)) if rows > *most => {
                let doublings = (rows as f64 / *most as f64).log2().max(0.0);
                let grown = *bytes as f64 * self.growth().powf(doublings);
                widened(self.expected(rows).max(grown as u64), self.margin)
            }
            Some(_) => widened(self.expected(rows), self.margin),
        };
        expected.saturating_add(SLACK).max(self.lacking(rows))
    }

    /// What to reserve on a lane without a session.
    pub(super) fn cold_run(&self, rows: usize) -> u64 {
        let ran = self.session().saturating_add(self.run(rows));
        ran.max(self.opening.unwrap_or(self.guess.session))
    }

    /// What a run of `rows` needs, where that is more than there is at `most`. A guess must be wrong by half to be believed.
    pub(super) fn hopeless(&self, rows: usize, most: u64, now: Duration) -> Option<u64> {
        if let Some((refused, had, until)) = self.refused
            && rows >= refused
            && most <= had
            && now < until
        {
            return Some(had.saturating_add(1));
        }
        let needs = self.session().saturating_add(self.at_least(rows));
        let measured = self.session.is_some() && self.runs.range(rows..).next().is_some();
        let believed = if measured { most } else { most.saturating_mul(2) };
        (needs > believed).then_some(needs)
    }

    /// Rows beyond which nothing is predicted: twice what was measured, and what memory sufficed for.
    pub(super) fn most_rows(&self) -> usize {
        let most = self
            .runs
            .last_key_value()
            .map_or(1, |(most, _)| most.saturating_mul(2));
        self.cap.map_or(most, |(cap, _)| cap.min(most))
    }

    /// The largest growth over the last doublings that were seen; at least 2.
    fn growth(&self) -> f64 {
        let points: Vec<(f64, f64)> = self
            .runs
            .iter()
            .rev()
            .take(3)
            .map(|(rows, bytes)| (*rows as f64, (*bytes).max(1) as f64))
            .collect();
        let pairs = points.iter().zip(points.iter().skip(1));
        let growths = pairs.map(|((more, high), (less, low))| {
            let doublings = (more / less).log2().max(f64::EPSILON);
            (high / low).powf(1.0 / doublings)
        });
        match growths.reduce(f64::max) {
            Some(growth) if points.len() > 2 => growth.clamp(2.0, UNKNOWN_GROWTH),
            _ => UNKNOWN_GROWTH,
        }
    }

    fn lacking(&self, rows: usize) -> u64 {
        let lacked = self.lacked.range(..=rows).map(|(_, bytes)| *bytes).max();
        lacked.map_or(0, |bytes| bytes.saturating_mul(2))
    }

    /// A session was opened, which took `opening` bytes at most and takes `session` now.
    pub(super) fn note_session(&mut self, opening: Option<u64>, session: Option<u64>) {
        self.opening = opening.or(self.opening);
        self.session = session.or(self.session);
    }

    /// Memory did not suffice for this run, which had `kept` bytes of earlier ones as well, or for opening its session.
    pub(super) fn note_no_memory(&mut self, running: &Running, kept: u64) {
        match running.open {
            true => self.note_lacked(running.rows, running.for_run.saturating_add(kept)),
            false => self.opening = Some(running.bytes.saturating_mul(2)),
        }
    }

    /// A run of `rows` took `took` of the `reserved` bytes. What the first run of a session takes (`cold`) is not what later ones do.
    pub(super) fn note_run(&mut self, rows: usize, took: Took, reserved: u64, cold: bool) -> Missed {
        let known = self.runs.len() > 1 || self.runs.contains_key(&rows);
        let expected = self.expected(rows);
        let bytes = match known {
            true => expected.clamp(took.least.min(took.most), took.most),
            false => took.most,
        };
        let whole = self.session().saturating_add(bytes).max(1) as f64;
        let error = known.then(|| expected.abs_diff(bytes) as f64 / whole);
        let miss = took.least > reserved;
        if miss {
            let excess = bytes as f64 / expected.max(1) as f64 - 1.0;
            self.widen(excess * 1.25);
        } else {
            self.margin = (self.margin * NARROWER).max(MARGIN.1);
        }
        if !cold || !self.runs.contains_key(&rows) {
            self.keep(rows, bytes);
        }
        self.lacked = self.lacked.split_off(&(rows + 1));
        self.cap = self.cap.and_then(|(cap, runs)| raised(cap, runs, rows));
        Missed { error, miss }
    }

    /// A run of `rows` was done, and nobody saw what it took: the guess stays.
    pub(super) fn note_unseen(&mut self, rows: usize) {
        let bytes = self.guess.per_row.saturating_mul(rows as u64);
        self.keep(rows, self.guess.fixed.saturating_add(bytes));
    }

    /// A run of `rows` that had `reserved` bytes was not done for want of memory.
    fn note_lacked(&mut self, rows: usize, reserved: u64) {
        self.widen(0.0);
        // Less than what was had elsewhere says nothing: sessions differ from lane to lane, and so what they leave of the same bytes.
        let lacked = self.lacked.entry(rows).or_default();
        *lacked = reserved.max(*lacked);
        if self.lacked.len() > POINTS {
            self.lacked.pop_last();
        }
        if rows > 1 {
            self.cap = Some((rows / 2, 0));
        }
    }

    /// Whether another abort may be for want of memory.
    pub(super) fn may_abort(&self) -> bool {
        self.aborts < ABORTS
    }

    /// A run ended the process, as if memory did not suffice.
    pub(super) fn note_abort(&mut self) {
        self.aborts += 1;
    }

    /// A run of `rows` was not done with all the memory there was.
    pub(super) fn note_refused(&mut self, rows: usize, had: u64, until: Duration) {
        self.refused = Some((rows, had, until));
    }

    fn widen(&mut self, at_least: f64) {
        self.margin = (self.margin * 1.5).max(at_least).min(MARGIN.2);
    }

    fn keep(&mut self, rows: usize, bytes: u64) {
        if !self.runs.contains_key(&rows) && self.runs.len() >= POINTS {
            // The least and the most rows say how memory grows; one between them is worth least.
            let middle = self.runs.keys().nth(POINTS / 2).copied();
            middle.and_then(|rows| self.runs.remove(&rows));
        }
        self.runs.insert(rows, bytes);
    }
}

/// A cap that so many `runs` kept to: doubled once they are enough, so that it is not felt for ever.
fn raised(cap: usize, runs: u32, rows: usize) -> Option<(usize, u32)> {
    const KEPT_TO: u32 = 16;
    match runs + u32::from(rows >= cap) {
        KEPT_TO.. if cap >= 1 << 20 => None,
        KEPT_TO.. => Some((cap * 2, 0)),
        runs => Some((cap, runs)),
    }
}

fn widened(bytes: u64, margin: f64) -> u64 {
    bytes.saturating_add((bytes as f64 * margin) as u64)
}
