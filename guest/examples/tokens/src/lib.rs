//! Example: reads token ids from objects and computes a mask, for networks of text with several inputs.
//!
//! An object contains the ids of a text as little-endian 32-bit integers. The guest pads them with zeros to the
//! length that the network takes. The network has an input for the ids, and may have one for the mask, which
//! contains "mask" in its name and is 1 for ids and 0 for padding. All other inputs are zeros.

use frostline_guest::{
    Description, ElementType, Error, ErrorCode, Extracted, FailedSample, FrozenPrefix, Job, Model, Sample,
    Tensor, TensorInfo, objects,
};

struct Tokens;

impl FrozenPrefix for Tokens {
    fn describe(model: Model, _: String, description: &Description) -> Result<(), Error> {
        length(&model.inputs)?;
        description.set_name("tokens", env!("CARGO_PKG_VERSION"));
        description.serve_all(&model)
    }

    fn extract(job: Job) -> Result<Extracted, Error> {
        let length = length(&job.inputs)?;
        let mut texts = Vec::new();
        let mut failed = Vec::new();
        for (index, sample) in (0..).zip(&job.samples) {
            match read(sample, length) {
                Ok(ids) => texts.push(ids),
                Err(error) => failed.push(FailedSample { index, error }),
            }
        }
        let batches = job.inputs.iter().map(|input| batch(input, &texts, length));
        let batches = batches.collect::<Result<_, _>>()?;
        job.run(batches, failed)
    }
}

/// Role of an input of the network.
enum Role {
    Ids,
    Mask,
    Zeros,
}

/// Returns the role of an input. The first input without a special name is the one for ids.
fn role(input: &TensorInfo) -> Role {
    match input.name.as_str() {
        name if name.contains("mask") => Role::Mask,
        name if name.contains("type") || name.contains("position") => Role::Zeros,
        _ => Role::Ids,
    }
}

/// Returns the number of ids that the network takes.
fn length(inputs: &[TensorInfo]) -> Result<u32, Error> {
    let ids = inputs.iter().find(|input| matches!(role(input), Role::Ids));
    if let Some(ids) = ids
        && let &[length] = ids.shape.as_slice()
        && inputs.iter().all(|input| input.shape == ids.shape)
    {
        return Ok(length);
    }
    let shapes = inputs
        .iter()
        .map(|input| format!("{}{:?}", input.name, input.shape));
    Err(Error::invalid(format!(
        "this guest serves networks of text, whose inputs all have the shape [length], not {}",
        shapes.collect::<Vec<_>>().join(", ")
    )))
}

/// Reads the ids of a text.
fn read(sample: &Sample, length: u32) -> Result<Vec<u32>, Error> {
    let size = objects::size(sample)?;
    if size == 0 || size % 4 != 0 || size > u64::from(length) * 4 {
        return Err(Error::new(
            ErrorCode::InvalidData,
            format!("the object has {size} bytes, expected 4 bytes for each of 1 to {length} ids"),
        ));
    }
    let bytes = objects::read(sample, 0, size as u32)?;
    let (ids, _) = bytes.as_chunks::<4>();
    Ok(ids.iter().map(|id| u32::from_le_bytes(*id)).collect())
}

/// Returns the batch of an input. The host converts the elements to the type of the input.
fn batch(input: &TensorInfo, texts: &[Vec<u32>], length: u32) -> Result<Tensor, Error> {
    let length = length as usize;
    let mut elements = vec![0_i64; texts.len() * length];
    for (row, ids) in elements.chunks_exact_mut(length.max(1)).zip(texts) {
        for (element, id) in row.iter_mut().zip(ids) {
            *element = match role(input) {
                Role::Ids => i64::from(*id),
                Role::Mask => 1,
                Role::Zeros => 0,
            };
        }
    }
    let bytes: Vec<u8> = elements.into_iter().flat_map(i64::to_le_bytes).collect();
    let shape = [texts.len() as u32, length as u32];
    Tensor::from_bytes(ElementType::Int64, &shape, &bytes)?.cast(input.element_type)
}

frostline_guest::export!(Tokens);
