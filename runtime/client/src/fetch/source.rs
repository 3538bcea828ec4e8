use frostline_tensor::{PixelSpec, Shape};
use frostline_wire::{
    Compression, Encoding, ExtractionRequest, ObjectInfo, RequestedSample, RowFormat, Split, TensorInfo,
    Terms, UploadRef, Values, View,
};

/// Description of the rows to request from hosts, and of the conversion into a tensor.
#[derive(Debug, Clone)]
pub struct Source {
    /// The data root that keys are relative to.
    pub root: String,
    /// The split, which determines the content of the rows.
    pub split: Split,
    /// Encoding of the rows in transit.
    pub encoding: Encoding,
    /// Guest that computes the rows. `None` at the split `none`.
    pub guest: Option<UploadRef>,
    /// Model whose layers the guest executes, if any.
    pub model: Option<UploadRef>,
    /// Parameters passed to the guest.
    pub parameters: String,
    /// Priority, fixed batch size and precision for engine batches.
    pub terms: Terms,
    /// Augmentation of the pixels, if any. Objects are augmented by this client, pixels by the host.
    pub view: Option<View>,
    /// Form of the rows on arrival.
    pub rows: RowKind,
    /// Shape of one sample in the tensor.
    pub shape: Vec<usize>,
    /// Tensors that a row concatenates, which hosts encode separately. Empty for a single tensor.
    pub tensors: Vec<TensorInfo>,
    /// Maximum number of samples per request.
    pub request_samples: usize,
}

/// Form of a row on arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowKind {
    /// Bytes of an object, decoded and normalized by this client according to the pixel spec.
    Objects(PixelSpec),
    /// Pixels as `u8`, normalized by this client according to the pixel spec.
    Pixels(PixelSpec),
    /// Input of the next stage.
    Values,
}

/// Sample count and total size used in memory estimates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of samples.
    pub samples: u64,
    /// Total size of the objects in bytes.
    pub objects: u64,
}

impl Weight {
    /// Adds up `samples`.
    pub fn sum<'a>(samples: impl Iterator<Item = &'a ObjectInfo>) -> Self {
        samples.fold(Self::default(), |weight, sample| Self {
            samples: weight.samples + 1,
            objects: weight.objects.saturating_add(sample.size),
        })
    }
}

impl Source {
    /// Row format of an answer.
    pub(super) fn format(&self) -> RowFormat {
        match self.rows {
            RowKind::Objects(_) => RowFormat::Object,
            RowKind::Pixels(_) => RowFormat::Tensor(Values::U8, self.shape.clone()),
            RowKind::Values => {
                let values = self.encoding.values;
                values.rows_of(self.shape.clone(), &self.tensors)
            }
        }
    }

    /// Pixel spec for rows that this client has to normalize.
    pub(super) fn pixels(&self) -> Option<PixelSpec> {
        match self.rows {
            RowKind::Objects(spec) | RowKind::Pixels(spec) => Some(spec),
            RowKind::Values => None,
        }
    }

    /// Builds a request for `samples`, which are pairs of position and object.
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
            // At the split `none`, this client decodes and augments the objects.
            view: self.view.filter(|_| self.split != Split::None),
            samples: samples.collect(),
            digests: false,
        }
    }

    /// Maximum size in bytes of the answer for these samples as a single message, compressed or decompressed.
    pub(super) fn answer_bytes(&self, weight: Weight) -> u64 {
        self.format().message_bytes(weight.samples, weight.objects)
    }

    /// Estimates the memory in bytes that a batch needs from the first request until the training step.
    /// Includes messages, rows and the normalized tensor if it is separate.
    pub fn batch_bytes(&self, weight: Weight) -> u64 {
        let elements = Shape::new(self.shape.as_slice()).elements();
        let elements = elements.map_or(u64::MAX, |elements| elements as u64);
        let elements = elements.saturating_mul(weight.samples);
        let messages = self.answer_bytes(weight).saturating_mul(self.copies());
        let tensors = match self.rows {
            RowKind::Values => 4,
            RowKind::Pixels(_) | RowKind::Objects(_) => 5,
        };
        messages.saturating_add(elements.saturating_mul(tensors))
    }

    /// Number of simultaneous message copies in memory. Objects are also queued for a decoder, and compressed
    /// buffers are also present in decompressed form.
    fn copies(&self) -> u64 {
        match (self.rows, self.encoding.compression) {
            (RowKind::Values | RowKind::Pixels(_), Compression::None) => 1,
            _ => 2,
        }
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
            tensors: Vec::new(),
            request_samples: 2,
        }
    }

    #[test]
    fn a_batchs_bytes_cover_what_it_holds() {
        let sample = ObjectInfo {
            label: None,
            sample: SampleRef::new("a"),
            size: 100_000,
            changed: None,
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
        // Rows that exceed the range of half precision use both columns.
        assert!(halves.answer_bytes(weight) >= message + 2 * 48 * 2);
        let huge = Source {
            shape: vec![usize::MAX, usize::MAX],
            ..source(RowKind::Values)
        };
        assert_eq!(huge.batch_bytes(weight), u64::MAX);
    }
}
