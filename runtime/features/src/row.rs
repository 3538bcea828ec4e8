use crate::FeatureError;
use frostline_tensor::{SampleRef, View};
use half::f16;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;

/// Number format of the values on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Single precision.
    F32,
    /// Half precision. Rows with a finite value beyond 65504 are not cached.
    F16,
}

/// Format of the rows in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Shape of one row.
    pub shape: Vec<usize>,
    /// Number format on disk.
    pub form: Form,
}

impl Row {
    /// Returns the number of values in a row.
    ///
    /// # Errors
    /// Returns [`FeatureError::Row`] if the row is empty or its size overflows.
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

    /// Returns the size of a row's values on disk in bytes.
    ///
    /// # Errors
    /// Returns [`FeatureError::Row`] if the row is empty or its size overflows.
    pub fn bytes(&self) -> Result<usize, FeatureError> {
        let each = match self.form {
            Form::F32 => 4,
            Form::F16 => 2,
        };
        Ok(self.values()? * each)
    }

    /// Returns the disk space for `rows` rows and their index records in bytes.
    ///
    /// # Errors
    /// Returns [`FeatureError::Row`] if the row is empty or its size overflows.
    pub fn disk_bytes(&self, rows: u64) -> Result<u64, FeatureError> {
        let each = (self.bytes()? + crate::index::RECORD) as u64;
        Ok(each.saturating_mul(rows))
    }
}

impl Form {
    /// Appends `values` to `bytes` in the format used on disk.
    pub(crate) fn write(self, values: &[f32], bytes: &mut Vec<u8>) {
        match self {
            Self::F32 => bytes.extend_from_slice(bytemuck::cast_slice(values)),
            Self::F16 => bytes.extend_from_slice(bytemuck::cast_slice(&frostline_tensor::to_f16(values))),
        }
    }

    /// Rounds `values` in the same way as a write followed by a read. Returns false and leaves them unchanged
    /// if the format cannot represent them.
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

    /// Decodes a row into `into`. `fill` copies the row's bytes to the given buffer.
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

/// Bit in the last byte of a job's private keys.
const OWN: u8 = 1;

/// Key of a row. A hash of the data root, the object version and the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowKey(pub(crate) [u8; Self::BYTES]);

impl RowKey {
    pub(crate) const BYTES: usize = 16;

    /// Returns true if other jobs can derive the same key, so that sharing the row is useful.
    pub(crate) fn is_shareable(&self) -> bool {
        let [.., last] = self.0;
        last & OWN == 0
    }

    /// Returns the checksum of a row. The checksum includes the key to prevent confusing rows.
    pub(crate) fn checksum(&self, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&self.0), bytes)
    }
}

/// Creates row keys for one data root and one view.
#[derive(Clone)]
pub struct RowKeys {
    root: Sha256,
    run: [u8; 16],
}

impl RowKeys {
    /// Creates keys for objects under `root`. Objects without an etag may change without notice, so their
    /// keys include `run`, which is unique per job.
    pub fn new(root: &str, view: Option<&View>, run: [u8; 16]) -> Self {
        let mut hash = Sha256::new();
        add(&mut hash, root.as_bytes());
        // Serialization cannot fail, because a view contains only numbers.
        let view = view.map(|view| serde_json::to_vec(view).unwrap_or_default());
        add(&mut hash, view.as_deref().unwrap_or_default());
        Self { root: hash, run }
    }

    /// Returns the key for the row of a sample. The key is a hash of the data root, the view, and the
    /// object's key and etag. Without an etag, the hash includes the run instead, and the last bit marks the
    /// key as private.
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

/// Hashes the length and the bytes of `text`, so that adjacent fields are unambiguous.
fn add(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
