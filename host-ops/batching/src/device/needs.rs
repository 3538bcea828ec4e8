//! Memory model of stages, learned from measured executions.

use super::work::MemoryEstimate;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of row counts with a measurement.
const POINTS: usize = 24;

/// Factor on the estimate per row while no measurements exist. Estimates only include the network's tensors;
/// an engine uses up to 4.4 times as much.
const FIRST: u64 = 4;

/// Assumed growth of memory when the number of rows doubles, until measured. Corresponds to rows squared.
const UNKNOWN_GROWTH: f64 = 4.0;

/// Initial, minimum and maximum safety margin.
const MARGIN: (f64, f64, f64) = (0.1, 0.05, 1.0);

/// Factor that narrows the margin after a batch within the reservation.
const NARROWER: f64 = 0.99;

/// Granularity of measurements due to pages and arenas of the allocator.
const SLACK: u64 = 1 << 20;

/// Maximum number of aborts per stage that are attributed to memory. Each one doubles the next reservation.
const ABORTS: u32 = 8;

/// Measured bytes of sessions and batches. Batch sizes are interpolated and extrapolated linearly, with a
/// safety margin that grows with each miss.
#[derive(Debug, Clone)]
pub(super) struct Needs {
    guess: MemoryEstimate,
    opening: Option<u64>,
    session: Option<u64>,
    runs: BTreeMap<usize, u64>,
    margin: f64,
    /// Insufficient reservations by number of rows. A successful batch removes the entries with fewer or
    /// equal rows.
    lacked: BTreeMap<usize, u64>,
    /// Row limit after a batch ran out of memory, with the number of later batches at this limit.
    cap: Option<(usize, u32)>,
    /// Refusal after a failure with all available memory: number of rows, available bytes, and expiry.
    refused: Option<(usize, u64, Duration)>,
    aborts: u32,
}

/// Bounds of the bytes used by a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasuredBytes {
    pub(super) lower: u64,
    pub(super) upper: u64,
}

/// Accuracy of a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Missed {
    /// Relative error as a fraction of the measured bytes, including the session; `None` if no prediction
    /// from measurements existed.
    pub(super) error: Option<f64>,
    /// True if the batch exceeded the reservation.
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

    /// Returns the bytes of an open session.
    pub(super) fn session(&self) -> u64 {
        self.session.unwrap_or(self.guess.session)
    }

    /// Returns the fixed bytes per batch and the additional bytes per row.
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

    /// Returns the expected bytes of a batch with `rows` rows, excluding margins.
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
        let low = *one.1;
        let high = *two.1;
        let slope = high.saturating_sub(low) as f64 / (two.0 - one.0) as f64;
        low.saturating_add((slope * (rows - one.0) as f64) as u64)
    }

    /// Returns a lower bound for a batch with `rows` rows. Same as [`Self::expected`], except after
    /// measurements of a single row count, which do not show the bytes per row: then the estimate applies,
    /// which is too low.
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

    /// Returns the bytes to reserve for a batch with `rows` rows and an open session.
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

    /// Returns the bytes to reserve for a batch with `rows` rows on a lane without a session.
    pub(super) fn cold_run(&self, rows: usize) -> u64 {
        let ran = self.session().saturating_add(self.run(rows));
        ran.max(self.opening.unwrap_or(self.guess.session))
    }

    /// Returns the bytes required for a batch with `rows` rows if they exceed the available bytes `most`. An
    /// estimate counts only if it exceeds twice the available bytes.
    pub(super) fn required_if_too_large(&self, rows: usize, most: u64, now: Duration) -> Option<u64> {
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

    /// Returns the largest batch that may be predicted: twice the largest measured one, within the limit
    /// after failures.
    pub(super) fn most_rows(&self) -> usize {
        let most = self
            .runs
            .last_key_value()
            .map_or(1, |(most, _)| most.saturating_mul(2));
        self.cap.map_or(most, |(cap, _)| cap.min(most))
    }

    /// Returns the largest measured growth over the last doublings, between 2 and 4; 4 if fewer than three
    /// row counts are measured.
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

    /// Records the bytes of a newly opened session: `opening` at the peak and `session` afterwards.
    pub(super) fn note_session(&mut self, opening: Option<u64>, session: Option<u64>) {
        self.opening = opening.or(self.opening);
        self.session = session.or(self.session);
    }

    /// Records that a batch with `rows` rows and a reservation of `reserved` bytes used `took` bytes. With
    /// `cold`, existing measurements remain, because the first execution of a session differs from later
    /// ones.
    pub(super) fn note_run(&mut self, rows: usize, took: MeasuredBytes, reserved: u64, cold: bool) -> Missed {
        let known = self.runs.len() > 1 || self.runs.contains_key(&rows);
        let expected = self.expected(rows);
        let bytes = match known {
            true => expected.clamp(took.lower.min(took.upper), took.upper),
            false => took.upper,
        };
        let whole = self.session().saturating_add(bytes).max(1) as f64;
        let error = known.then(|| expected.abs_diff(bytes) as f64 / whole);
        let miss = took.lower > reserved;
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

    /// Records a successful batch with `rows` rows without a memory measurement; the estimate remains in use.
    pub(super) fn note_unseen(&mut self, rows: usize) {
        let bytes = self.guess.per_row.saturating_mul(rows as u64);
        self.keep(rows, self.guess.fixed.saturating_add(bytes));
    }

    /// Records that `reserved` bytes were insufficient for a batch with `rows` rows.
    pub(super) fn note_lacked(&mut self, rows: usize, reserved: u64) {
        self.widen(0.0);
        // A smaller reservation that failed is no reason to lower the value: sessions differ between lanes,
        // and so does the memory that remains for the batch.
        let lacked = self.lacked.entry(rows).or_default();
        *lacked = reserved.max(*lacked);
        if self.lacked.len() > POINTS {
            self.lacked.pop_last();
        }
        if rows > 1 {
            self.cap = Some((rows / 2, 0));
        }
    }

    /// True if another abort may be attributed to memory.
    pub(super) fn may_abort(&self) -> bool {
        self.aborts < ABORTS
    }

    /// Records that a batch aborted the process, possibly for lack of memory.
    pub(super) fn note_abort(&mut self) {
        self.aborts += 1;
    }

    /// Records that a batch with `rows` rows failed with all available memory.
    pub(super) fn note_refused(&mut self, rows: usize, had: u64, until: Duration) {
        self.refused = Some((rows, had, until));
    }

    fn widen(&mut self, at_least: f64) {
        self.margin = (self.margin * 1.5).max(at_least).min(MARGIN.2);
    }

    fn keep(&mut self, rows: usize, bytes: u64) {
        if !self.runs.contains_key(&rows) && self.runs.len() >= POINTS {
            // The smallest and the largest row counts determine the growth, so one in the middle is the least
            // useful.
            let middle = self.runs.keys().nth(POINTS / 2).copied();
            middle.and_then(|rows| self.runs.remove(&rows));
        }
        self.runs.insert(rows, bytes);
    }
}

/// Doubles the limit `cap` after enough batches reached it, so that the limit is not permanent.
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
