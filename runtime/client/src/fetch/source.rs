use frostline_tensor::PixelSpec;
use frostline_wire::{
    Compression, Encoding, ExtractionRequest, ObjectInfo, Pin, RequestedSample, RowFormat, Split, Terms, View,
};

/// What is asked of the host, and what its rows become.
#[derive(Debug, Clone)]
pub struct Source {
    /// The data root that keys are relative to.
    pub root: String,
    /// Where the network is divided: what the rows are.
    pub split: Split,
    /// How they travel.
    pub encoding: Encoding,
    /// Who makes them; `None` at the split `none`.
    pub guest: Option<Pin>,
    /// Whose layers it runs; `None` where it runs none.
    pub model: Option<Pin>,
    /// What the guest is told.
    pub parameters: String,
    /// How its runs stand to other work there.
    pub terms: Terms,
    /// How pixels are augmented, on the host or here; not at all without one.
    pub view: Option<View>,
    /// What they are made into here.
    pub rows: RowKind,
    /// Shape of one sample as it is then.
    pub shape: Vec<usize>,
    /// The most samples of one request.
    pub request_samples: usize,
}

/// What a row is when it arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowKind {
    /// An object's bytes, decoded here by the recipe.
    Objects(PixelSpec),
    /// Pixels, normalized here by the recipe.
    Pixels(PixelSpec),
    /// What the next stage takes.
    Values,
}

/// Some samples, as far as memory is concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// How many.
    pub samples: u64,
    /// Bytes of their objects together.
    pub objects: u64,
}

impl Weight {
    /// These together.
    pub fn sum<'a>(samples: impl Iterator<Item = &'a ObjectInfo>) -> Self {
        samples.fold(Self::default(), |weight, sample| Self {
            samples: weight.samples + 1,
            objects: weight.objects.saturating_add(sample.size),
        })
    }
}

impl Source {
    /// The type rows arrive in.
    pub(super) fn format(&self) -> RowFormat {
        match self.rows {
            RowKind::Objects(_) => RowFormat::Object,
            RowKind::Pixels(_) => RowFormat::U8(self.shape.clone()),
            RowKind::Values => self.encoding.values.rows(self.shape.clone()),
        }
    }

    /// The recipe for rows that have yet to be normalized.
    pub(super) fn pixels(&self) -> Option<PixelSpec> {
        match self.rows {
            RowKind::Objects(spec) | RowKind::Pixels(spec) => Some(spec),
            RowKind::Values => None,
        }
    }

    /// Asks for `samples` by the positions they are given with.
    pub(super) fn request<'a>(
        &self,
        samples: impl Iterator<Item = (u32, &'a ObjectInfo)>,
    ) -> ExtractionRequest {
        let samples = samples.map(|(position, sample)| RequestedSample {
            position,
            sample: sample.sample.clone(),
        });
        ExtractionRequest {
            root: self.root.clone(),
            split: self.split.clone(),
            guest: self.guest.clone(),
            model: self.model.clone(),
            parameters: self.parameters.clone(),
            encoding: self.encoding,
            terms: self.terms,
            // Objects are augmented where they are decoded.
            view: self.view.filter(|_| self.split != Split::None),
            samples: samples.collect(),
        }
    }

    /// The most bytes the answer for these samples takes as one message, as received or decompressed.
    pub(super) fn answer_bytes(&self, weight: Weight) -> u64 {
        self.format().message_bytes(weight.samples, weight.objects)
    }

    /// Bytes a batch of these samples takes from its first request until it is trained: the messages being read, the rows, and
    /// the normalized tensor where that is another one.
    pub fn batch_bytes(&self, weight: Weight) -> u64 {
        let elements = self.elements().saturating_mul(weight.samples);
        let messages = self.answer_bytes(weight).saturating_mul(self.copies());
        let tensors = match self.rows {
            RowKind::Values => 4,
            RowKind::Pixels(_) | RowKind::Objects(_) => 5,
        };
        messages.saturating_add(elements.saturating_mul(tensors))
    }

    /// How often a message is held for a moment: an object's bytes also on their way to a decoder, compressed buffers also
    /// decompressed.
    fn copies(&self) -> u64 {
        match (self.rows, self.encoding.compression) {
            (RowKind::Values | RowKind::Pixels(_), Compression::None) => 1,
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

    fn source(rows: RowKind) -> Source {
        Source {
            root: "data".to_owned(),
            split: Split::Input,
            encoding: Encoding::F32,
            guest: None,
            model: None,
            parameters: String::new(),
            terms: Terms::default(),
            view: None,
            rows,
            shape: vec![3, 4, 4],
            request_samples: 2,
        }
    }

    #[test]
    fn a_batchs_bytes_cover_what_it_holds() {
        let sample = ObjectInfo {
            label: None,
            sample: SampleRef::new("a"),
            size: 100_000,
        };
        let weight = Weight::sum([sample.clone(), sample].iter());
        let spec = PixelSpec::imagenet(4, 4);
        assert!(source(RowKind::Objects(spec)).batch_bytes(weight) > 400_000 + 2 * 48 * 5);
        assert!(source(RowKind::Values).batch_bytes(weight) > 2 * 48 * 8);
        let plain = source(RowKind::Values);
        let compressed = Source {
            encoding: Encoding::F32.with(Compression::Lz4),
            ..source(RowKind::Values)
        };
        let message = plain.answer_bytes(weight);
        assert_eq!(
            compressed.batch_bytes(weight),
            plain.batch_bytes(weight) + message
        );
        let halves = Source {
            encoding: Encoding::F16,
            ..source(RowKind::Values)
        };
        // A row that half precision cannot hold travels in both columns.
        assert!(halves.answer_bytes(weight) >= message + 2 * 48 * 2);
        let huge = Source {
            shape: vec![usize::MAX, usize::MAX],
            ..source(RowKind::Values)
        };
        assert_eq!(huge.batch_bytes(weight), u64::MAX);
    }
}
