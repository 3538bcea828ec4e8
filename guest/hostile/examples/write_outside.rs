//! Reads, writes and slices a tensor outside of its elements.

use frostline_hostile::frostline_guest::{ElementType, Tensor};

frostline_hostile::extracts!("write_outside", |job| {
    let tensor = Tensor::zeros(ElementType::Float32, &[2, 2])?;
    for (offset, length) in [(0, 17), (16, 1), (u64::MAX, 1), (1, u64::MAX)] {
        if tensor.read(offset, length).is_ok() {
            return frostline_hostile::answer(&job);
        }
    }
    for (start, end) in [(0, 3), (2, 1), (3, 3)] {
        if tensor.slice(start, end).is_ok() {
            return frostline_hostile::answer(&job);
        }
    }
    tensor.write(u64::MAX, &[1])?;
    frostline_hostile::answer(&job)
});
