//! Export to TensorBoard. The file contains `tensorboard.Event` messages in TFRecord frames with lengths and
//! checksums.

use crate::Run;
use crate::run::{Epoch, RunJournal};

/// Returns the contents of a TensorBoard event file for `run`. TensorBoard opens files with `tfevents` in the
/// name.
///
/// Scalars use the step number, and scalars of an epoch the number of the last step:
///
/// * `step/loss`, `step/waited_seconds`, `step/computed_seconds`
/// * `epoch/loss`, `epoch/seconds`, `epoch/waited_seconds`, `epoch/bytes_received`,
///   `epoch/images_per_second`, `epoch/skipped`, `epoch/cached_rows`, `epoch/fetched_rows`
/// * `validation/accuracy` or the other metrics of the task, including the validation before training
///
/// Only finite values are written. For jobs with more than 250,000 steps, steps are sampled evenly.
pub fn tensorboard(run: &Run) -> Vec<u8> {
    let mut events = Events::new(run.started);
    let journal = &run.journal;
    if let Some(baseline) = &journal.baseline {
        for (name, value) in baseline.figures() {
            events.scalar(run.started, 0, &format!("validation/{name}"), value);
        }
    }
    let mut epochs = journal.epochs.iter().peekable();
    let mut last = 0;
    for step in journal.steps.sampled() {
        while let Some(epoch) = epochs.next_if(|epoch| epoch.trained.epoch < step.epoch) {
            add_epoch(&mut events, run.started, last, epoch, journal);
        }
        last = step.step;
        let at = run.started + step.at;
        let number = step.step;
        events.scalar(at, number, "step/loss", f64::from(step.loss));
        events.scalar(at, number, "step/waited_seconds", f64::from(step.waited));
        events.scalar(at, number, "step/computed_seconds", f64::from(step.computed));
    }
    for epoch in epochs {
        last = last.max(u64::from(epoch.trained.epoch).saturating_mul(journal.data.steps_per_epoch as u64));
        add_epoch(&mut events, run.started, last, epoch, journal);
    }
    events.bytes
}

fn add_epoch(events: &mut Events, started: f64, step: u64, epoch: &Epoch, journal: &RunJournal) {
    let at = started + epoch.at;
    let epoch = &epoch.trained;
    for (name, value) in [
        ("epoch/loss", epoch.loss),
        ("epoch/seconds", epoch.seconds),
        ("epoch/waited_seconds", epoch.waited_seconds),
        ("epoch/bytes_received", epoch.bytes_received as f64),
        (
            "epoch/images_per_second",
            journal.data.train as f64 / epoch.seconds,
        ),
        ("epoch/skipped", epoch.skipped as f64),
        ("epoch/cached_rows", epoch.cached_rows as f64),
        ("epoch/fetched_rows", epoch.fetched_rows as f64),
    ] {
        events.scalar(at, step, name, value);
    }
    for (name, value) in epoch.validation.figures() {
        events.scalar(at, step, &format!("validation/{name}"), value);
    }
}

/// Message fields, encoded as number and wire type (0: varint, 1: eight bytes, 2: length-delimited, 5: four
/// bytes).
mod field {
    pub(super) const WALL_TIME: u8 = 1 << 3 | 1;
    pub(super) const STEP: u8 = 2 << 3;
    pub(super) const FILE_VERSION: u8 = 3 << 3 | 2;
    pub(super) const SUMMARY: u8 = 5 << 3 | 2;
    pub(super) const VALUE: u8 = 1 << 3 | 2;
    pub(super) const TAG: u8 = 1 << 3 | 2;
    pub(super) const SIMPLE_VALUE: u8 = 2 << 3 | 5;
}

/// An event file in memory.
struct Events {
    bytes: Vec<u8>,
}

impl Events {
    /// Creates a file with the initial version record at the given Unix time in seconds.
    fn new(at: f64) -> Self {
        let mut events = Self { bytes: Vec::new() };
        let mut event = event(at);
        with_length(&mut event, field::FILE_VERSION, b"brain.Event:2");
        events.record(&event);
        events
    }

    /// Adds a value at a step, unless it is not finite.
    fn scalar(&mut self, at: f64, step: u64, tag: &str, value: f64) {
        if !value.is_finite() {
            return;
        }
        let mut point = Vec::new();
        with_length(&mut point, field::TAG, tag.as_bytes());
        point.push(field::SIMPLE_VALUE);
        point.extend((value as f32).to_le_bytes());
        let mut summary = Vec::new();
        with_length(&mut summary, field::VALUE, &point);
        let mut event = event(at);
        event.push(field::STEP);
        varint(&mut event, step);
        with_length(&mut event, field::SUMMARY, &summary);
        self.record(&event);
    }

    /// Appends a message with its length and two checksums.
    fn record(&mut self, message: &[u8]) {
        let length = (message.len() as u64).to_le_bytes();
        self.bytes.extend(length);
        self.bytes.extend(masked(&length).to_le_bytes());
        self.bytes.extend(message);
        self.bytes.extend(masked(message).to_le_bytes());
    }
}

fn event(at: f64) -> Vec<u8> {
    let mut event = vec![field::WALL_TIME];
    event.extend(at.to_le_bytes());
    event
}

fn with_length(to: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    to.push(field);
    varint(to, bytes.len() as u64);
    to.extend(bytes);
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Returns the masked checksum required by TFRecord. Masking keeps checksums effective for data that include
/// checksums.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Computes CRC-32C (Castagnoli) bit by bit. A faster algorithm is not necessary for short records.
fn crc32c(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg())
        })
    });
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are from RFC 3720, B.4, and the definition of CRC-32C.
    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        let mut bytes = Vec::new();
        varint(&mut bytes, 300);
        varint(&mut bytes, 0);
        assert_eq!(bytes, [0xac, 0x02, 0x00]);
    }
}
