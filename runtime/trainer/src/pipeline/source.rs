use crate::Sample;
use frostline_tensor::PixelSpec;
use frostline_wire::{Compression, Encoding, ExtractionRequest, Pin, RequestedSample, RowFormat, Split};

/// What is asked of the host, and what its rows become.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) root: String,
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    pub(crate) guest: Option<Pin>,
    pub(crate) model: Option<Pin>,
    pub(crate) parameters: String,
    pub(crate) rows: Rows,
    /// Shape of one sample as the trainer's next stage takes it.
    pub(crate) shape: Vec<usize>,
    /// The most samples of one request.
    pub(crate) request_samples: usize,
}

/// What a row is when it arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rows {
    /// An object's bytes, decoded here by the recipe.
    Objects(PixelSpec),
    /// Pixels, normalised here by the recipe.
    Pixels(PixelSpec),
    /// What the next stage takes.
    Values,
}

/// Some samples, as far as memory is concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// How many.
    pub(crate) samples: u64,
    /// Bytes of their objects together.
    pub(crate) objects: u64,
}

impl Weight {
    pub(crate) fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        samples.fold(Self::default(), |weight, sample| Self {
            samples: weight.samples + 1,
            objects: weight.objects.saturating_add(sample.size),
        })
    }
}

/// An error's code and text, with Arrow's bookkeeping for its row.
const ROW_OVERHEAD: u64 = 2 << 10;
/// An Arrow message's own fields.
const MESSAGE_OVERHEAD: u64 = 64 << 10;

impl Source {
    /// The type rows arrive in.
    pub(crate) fn format(&self) -> RowFormat {
        match self.rows {
            Rows::Objects(_) => RowFormat::Object,
            Rows::Pixels(_) => RowFormat::U8(self.shape.clone()),
            Rows::Values => self.encoding.values.rows(self.shape.clone()),
        }
    }

    /// The recipe for rows that have yet to be normalised.
    pub(crate) fn pixels(&self) -> Option<PixelSpec> {
        match self.rows {
            Rows::Objects(spec) | Rows::Pixels(spec) => Some(spec),
            Rows::Values => None,
        }
    }

    /// Asks for `samples` by the positions they are given with.
    pub(crate) fn request<'a>(&self, samples: impl Iterator<Item = (u32, &'a Sample)>) -> ExtractionRequest {
        let samples = samples.map(|(position, sample)| RequestedSample {
            position,
            sample: sample.object.clone(),
        });
        ExtractionRequest {
            root: self.root.clone(),
            split: self.split.clone(),
            guest: self.guest.clone(),
            model: self.model.clone(),
            parameters: self.parameters.clone(),
            encoding: self.encoding,
            samples: samples.collect(),
        }
    }

    /// The most bytes the answer for these samples takes as one message, as received or decompressed.
    pub(crate) fn answer_bytes(&self, weight: Weight) -> u64 {
        let row = self.format().largest_row_bytes().unwrap_or(Some(u64::MAX));
        let rows = row.map_or(weight.objects, |row| row.saturating_mul(weight.samples));
        let overhead = ROW_OVERHEAD.saturating_mul(weight.samples);
        rows.saturating_add(overhead).saturating_add(MESSAGE_OVERHEAD)
    }

    /// Bytes a batch of these samples takes from its first request until it is trained: the messages being read, the rows, and
    /// the normalised tensor where that is another one.
    pub(crate) fn batch_bytes(&self, weight: Weight) -> u64 {
        let elements = self.elements().saturating_mul(weight.samples);
        let messages = self.answer_bytes(weight).saturating_mul(self.copies());
        let tensors = match self.rows {
            Rows::Values => 4,
            Rows::Pixels(_) | Rows::Objects(_) => 5,
        };
        messages.saturating_add(elements.saturating_mul(tensors))
    }

    /// How often a message is held for a moment: an object's bytes also on their way to a decoder, compressed buffers also
    /// decompressed.
    fn copies(&self) -> u64 {
        match (self.rows, self.encoding.compression) {
            (Rows::Values | Rows::Pixels(_), Compression::None) => 1,
            _ => 2,
        }
    }

    fn elements(&self) -> u64 {
        self.shape
            .iter()
            .fold(1_u64, |product, side| product.saturating_mul(*side as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::SampleRef;

    fn source(rows: Rows) -> Source {
        Source {
            root: "data".to_owned(),
            split: Split::Input,
            encoding: Encoding::F32,
            guest: None,
            model: None,
            parameters: String::new(),
            rows,
            shape: vec![3, 4, 4],
            request_samples: 2,
        }
    }

    #[test]
    fn a_batchs_bytes_cover_what_it_holds() {
        let sample = Sample {
            object: SampleRef::new("a"),
            size: 100_000,
            label: 0,
        };
        let weight = Weight::of([sample.clone(), sample].iter());
        let spec = PixelSpec::imagenet(4, 4);
        assert!(source(Rows::Objects(spec)).batch_bytes(weight) > 400_000 + 2 * 48 * 5);
        assert!(source(Rows::Values).batch_bytes(weight) > 2 * 48 * 8);
        let plain = source(Rows::Values);
        let compressed = Source {
            encoding: Encoding::F32.with(Compression::Lz4),
            ..source(Rows::Values)
        };
        let message = plain.answer_bytes(weight);
        assert_eq!(
            compressed.batch_bytes(weight),
            plain.batch_bytes(weight) + message
        );
        let halves = Source {
            encoding: Encoding::F16,
            ..source(Rows::Values)
        };
        // A row that half precision cannot hold travels in both columns.
        assert!(halves.answer_bytes(weight) >= message + 2 * 48 * 2);
        let huge = Source {
            shape: vec![usize::MAX, usize::MAX],
            ..source(Rows::Values)
        };
        assert_eq!(huge.batch_bytes(weight), u64::MAX);
    }
}
