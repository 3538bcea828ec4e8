//! Samples `s0`, `s1` and so on. Rows contain the number of the sample.

use crate::{Answer, Reply};
use frostline_wire::{ExtractionRequest, ObjectInfo, RowFormat, SampleRef, Values};

/// Number of values per row.
pub const WIDTH: usize = 4;

/// Returns the format of the rows.
pub fn format() -> RowFormat {
    RowFormat::Tensor(Values::F32, vec![WIDTH])
}

/// Returns the row of the sample `s<number>`.
pub fn values(key: &str) -> Vec<f32> {
    let number: f32 = key.strip_prefix('s').unwrap().parse().unwrap();
    vec![number, -number, 0.5, number * 2.0]
}

/// Returns the first `count` samples.
pub fn samples(count: usize) -> Vec<ObjectInfo> {
    let sample = |i: usize| ObjectInfo {
        sample: SampleRef {
            key: format!("s{i}"),
            etag: Some(format!("e{i}")),
        },
        size: 20,
        label: None,
        changed: None,
    };
    (0..count).map(sample).collect()
}

/// Answers all samples in reverse order of positions.
pub fn answer_all(request: &ExtractionRequest) -> Reply {
    let rows = request.samples.iter().rev();
    rows.fold(Answer::new(format()), |answer, sample| {
        answer.row(sample.position, values(&sample.sample.key))
    })
    .finished()
}
