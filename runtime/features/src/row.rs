use crate::FeatureError;
use frostline_tensor::{SampleRef, View};
use half::f16;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;

/// What the values of a row are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As computed.
    F32,
    /// Rounded to half precision. A row with a finite value beyond 65504 is not kept.
    F16,
}

/// What a row of a store is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Of one sample.
    pub shape: Vec<usize>,
    /// What its values are on disk.
    pub form: Form,
}

impl Row {
    /// Values of a row.
    ///
    /// # Errors
    /// [`FeatureError::Row`] for none, and for more than can be counted.
    pub(crate) fn values(&self) -> Result<usize, FeatureError> {
        let product = self
            .shape
            .iter()
            .try_fold(1_usize, |product, side| product.checked_mul(*side));
        let fits = |values: &usize| *values > 0 && values.checked_mul(4).is_some();
        product.filter(fits).ok_or_else(|| FeatureError::Row {
            shape: self.shape.clone(),
        })
    }

    /// Bytes of a row's values on disk.
    ///
    /// # Errors
    /// [`FeatureError::Row`] for none, and for more than can be counted.
    pub fn bytes(&self) -> Result<usize, FeatureError> {
        let each = match self.form {
            Form::F32 => 4,
            Form::F16 => 2,
        };
        Ok(self.values()? * each)
    }

    /// Bytes that so many rows take on disk, with their records.
    ///
    /// # Errors
    /// As [`Row::bytes`].
    pub fn disk_bytes(&self, rows: u64) -> Result<u64, FeatureError> {
        let each = (self.bytes()? + crate::index::RECORD) as u64;
        Ok(each.saturating_mul(rows))
    }
}

impl Form {
    /// Appends `values` to `bytes` as they lie on disk.
    pub(crate) fn write(self, values: &[f32], bytes: &mut Vec<u8>) {
        match self {
            Self::F32 => bytes.extend_from_slice(bytemuck::cast_slice(values)),
            Self::F16 => bytes.extend_from_slice(bytemuck::cast_slice(&frostline_tensor::to_f16(values))),
        }
    }

    /// Makes `values` what they are once they were on disk; `false` where they cannot be there, and stay as they are.
    pub(crate) fn round(self, values: &mut [f32]) -> bool {
        match self {
            Self::F32 => true,
            Self::F16 if frostline_tensor::exceeds_f16(values) => false,
            Self::F16 => {
                let halves = frostline_tensor::to_f16(values);
                frostline_tensor::from_f16(&halves, values)
            }
        }
    }

    /// Has `fill` put a row's bytes somewhere, and gives its values into `into`.
    pub(crate) fn read<E>(
        self,
        into: &mut [f32],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::F32 => fill(bytemuck::cast_slice_mut(into)),
            Self::F16 => {
                let mut halves = vec![f16::ZERO; into.len()];
                fill(bytemuck::cast_slice_mut(&mut halves))?;
                frostline_tensor::from_f16(&halves, into);
                Ok(())
            }
        }
    }
}

/// The bit of a key's last byte that says that it is the key of one job alone.
const OWN: u8 = 1;

/// Names a row: an object's version under a data root, as it looks in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowKey(pub(crate) [u8; Self::BYTES]);

impl RowKey {
    pub(crate) const BYTES: usize = 16;

    /// Whether other jobs can find a row under this key, so that it is worth to be shown to them.
    pub(crate) fn travels(&self) -> bool {
        let [.., last] = self.0;
        last & OWN == 0
    }

    /// The checksum of a row under this key. It covers the key, so that a row is never taken for another's.
    pub(crate) fn checksum(&self, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&self.0), bytes)
    }
}

/// Makes the keys of rows of one data root, all in one view.
#[derive(Clone)]
pub struct RowKeys {
    root: Sha256,
    run: [u8; 16],
}

impl RowKeys {
    /// Keys of objects under `root`. An object without an etag may be another one tomorrow: its rows are told apart by `run`, which no two
    /// jobs have in common.
    pub fn new(root: &str, view: Option<&View>, run: [u8; 16]) -> Self {
        let mut hash = Sha256::new();
        add(&mut hash, root.as_bytes());
        // A view is plain numbers.
        let view = view.map(|view| serde_json::to_vec(view).unwrap_or_default());
        add(&mut hash, view.as_deref().unwrap_or_default());
        Self { root: hash, run }
    }

    /// The key of a sample's row.
    pub fn key_of(&self, sample: &SampleRef) -> RowKey {
        let mut hash = self.root.clone();
        add(&mut hash, sample.key.as_bytes());
        match &sample.etag {
            Some(etag) => add(&mut hash, etag.as_bytes()),
            None => hash.update(self.run),
        }
        let mut key = [0; RowKey::BYTES];
        for (to, from) in key.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        let [.., last] = &mut key;
        *last = match &sample.etag {
            Some(_) => *last & !OWN,
            None => *last | OWN,
        };
        RowKey(key)
    }
}

/// Takes in `text` so that what follows cannot be taken for a part of it.
fn add(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
