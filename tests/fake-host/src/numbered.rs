//! Samples `s0`, `s1`, ..., whose rows contain their numbers.

use crate::{Answer, Reply};
use frostline_wire::{ExtractionRequest, ObjectInfo, RowFormat, SampleRef};

/// Values of a row.
pub const WIDTH: usize = 4;

/// The format of their rows.
pub fn format() -> RowFormat {
    RowFormat::F32(vec![WIDTH])
}

/// The row of the sample `s<number>`.
pub fn values(key: &str) -> Vec<f32> {
    let number: f32 = key.strip_prefix('s').unwrap().parse().unwrap();
    vec![number, -number, 0.5, number * 2.0]
}

/// The first `count` of them.
pub fn samples(count: usize) -> Vec<ObjectInfo> {
    let sample = |i: usize| ObjectInfo {
        sample: SampleRef {
            key: format!("s{i}"),
            etag: Some(format!("e{i}")),
        },
        size: 20,
        label: None,
    };
    (0..count).map(sample).collect()
}

/// Answers everything, last position first.
pub fn answer_all(request: &ExtractionRequest) -> Reply {
    let rows = request.samples.iter().rev();
    rows.fold(Answer::new(format()), |answer, sample| {
        answer.row(sample.position, values(&sample.sample.key))
    })
    .finished()
}
