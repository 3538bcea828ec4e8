use crate::FeatureError;
use crate::records::KEY;
use frostline_tensor::{SampleRef, Shape, View};
use frostline_wire::TensorInfo;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;

/// Number format of floating-point values on disk.
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
    /// Tensors that a row concatenates. Integers have their own formats on disk: `u8` for bytes and booleans, and `i32`
    /// for others. Empty for a single tensor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<TensorInfo>,
}

impl Row {
    /// Returns the number of values in a row.
    ///
    /// # Errors
    /// Returns [`FeatureError::Row`] if the row is empty or its size overflows.
    pub(crate) fn values(&self) -> Result<usize, FeatureError> {
        let values = Shape::new(self.shape.as_slice()).elements().ok();
        values
            .filter(|values| *values > 0 && values.checked_mul(4).is_some())
            .ok_or_else(|| FeatureError::Row {
                shape: self.shape.clone(),
            })
    }
}

/// Bit in the last byte of keys that contain a hash of the content.
const HASHED: u8 = 2;

/// Number of bytes in a key with a hash of the content that do not depend on the content.
const SAMPLE_BYTES: usize = 8;

/// Knowledge about the content of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The etag identifies the content.
    Etag,
    /// XXH3 hash of the content. The etag may be the same for different contents.
    Hash(u64),
    /// The content may change without notice.
    Unknown,
}

/// Identifies a file at the time of its last change. As long as that time is the same, so is the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileState(pub(crate) [u8; KEY]);

/// Key of a row. A hash of the data root, the object version and the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowKey(pub(crate) [u8; KEY]);

impl RowKey {
    /// Returns the part of the key that does not depend on the content, if the key contains a hash of it.
    pub(crate) fn sample_part(&self) -> Option<[u8; SAMPLE_BYTES]> {
        let [.., last] = self.0;
        let part = self.0.first_chunk().copied();
        part.filter(|_| last & HASHED != 0)
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
    /// Hash of the root alone.
    files: Sha256,
    run: [u8; 16],
}

impl RowKeys {
    /// Creates keys for objects under `root`. Objects without an etag may change without notice, so their
    /// keys include `run`, which is unique per job.
    pub fn new(root: &str, view: Option<&View>, run: [u8; 16]) -> Self {
        let mut hash = Sha256::new();
        add(&mut hash, root.as_bytes());
        let files = hash.clone();
        // Serialization cannot fail, because a view contains only numbers.
        let view = view.map(|view| serde_json::to_vec(view).unwrap_or_default());
        add(&mut hash, view.as_deref().unwrap_or_default());
        Self {
            root: hash,
            files,
            run,
        }
    }

    /// Returns the key for the row of a sample. The key is a hash of the data root, the view, and the
    /// object's key and etag. If the content is hashed, the second half of the key is that hash instead. If the
    /// content is unknown or there is no etag, the hash includes the run instead of the etag, so that only
    /// this job finds the row.
    pub fn key_of(&self, sample: &SampleRef, content: Content) -> RowKey {
        let etag = sample.etag.as_ref().filter(|_| content != Content::Unknown);
        let mut hash = self.root.clone();
        add(&mut hash, sample.key.as_bytes());
        match etag {
            Some(etag) => add(&mut hash, etag.as_bytes()),
            None => hash.update(self.run),
        }
        let mut key = shortened(hash);
        let hashed = match content {
            Content::Hash(content) if etag.is_some() => {
                let rest = key.iter_mut().skip(SAMPLE_BYTES);
                rest.zip(content.to_le_bytes()).for_each(|(to, from)| *to = from);
                HASHED
            }
            _ => 0,
        };
        let [.., last] = &mut key;
        *last = *last & !HASHED | hashed;
        RowKey(key)
    }

    /// Returns the state of a file that was listed with the time of its last change, in nanoseconds since 1970.
    pub(crate) fn file_state(&self, sample: &SampleRef, changed: u64) -> FileState {
        let mut hash = self.files.clone();
        add(&mut hash, sample.key.as_bytes());
        add(&mut hash, sample.etag.as_deref().unwrap_or_default().as_bytes());
        hash.update(changed.to_le_bytes());
        FileState(shortened(hash))
    }
}

fn shortened(hash: Sha256) -> [u8; KEY] {
    let mut key = [0; KEY];
    for (to, from) in key.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    key
}

/// Hashes the length and the bytes of `text`, so that adjacent fields are unambiguous.
fn add(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
