//! Size limits for texts in requests, checked during deserialization. Hosts store texts for longer than the request
//! (jobs, caches, figures of stages, logs), so a text must not be as large as a request.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Maximum length of guest, model and tenant names in bytes.
const NAME: usize = 63;

/// Maximum bytes of a SHA-256 in hexadecimal.
const SHA256: usize = 64;

/// Maximum bytes of a cut's name, the limit for names in models.
const CUT: usize = 1024;

/// Maximum bytes of an object's key or etag, the limit of S3 for keys.
const KEY: usize = 1024;

/// Maximum bytes of the URL of a data root. A prefix of 1,024 bytes can triple when it is escaped.
const ROOT: usize = 4096;

/// Maximum bytes of the parameters of a guest. A recipe needs 200 bytes.
const PARAMETERS: usize = 64 << 10;

/// Maximum number of texts in a list. Networks have some hundred cuts, and tenants some data roots.
const LIST: usize = 1024;

/// Field with a text, an optional text or a list of texts.
pub(crate) trait Texts {
    fn texts(&self) -> &[String];
}

impl Texts for String {
    fn texts(&self) -> &[String] {
        std::slice::from_ref(self)
    }
}

impl<T: Texts> Texts for Option<T> {
    fn texts(&self) -> &[String] {
        self.as_ref().map_or(&[], Texts::texts)
    }
}

impl Texts for Vec<String> {
    fn texts(&self) -> &[String] {
        self
    }
}

/// Deserializes the texts of `field`, each of up to `limit` bytes.
fn bounded<'de, T, D>(from: D, field: &str, limit: usize) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Texts,
    D: Deserializer<'de>,
{
    let value = T::deserialize(from)?;
    let texts = value.texts();
    if texts.len() > LIST {
        let count = texts.len();
        return Err(D::Error::custom(format!(
            "`{field}` has {count} texts, but up to {LIST} are allowed"
        )));
    }
    match texts.iter().map(String::len).find(|bytes| *bytes > limit) {
        Some(bytes) => Err(D::Error::custom(format!(
            "a text of `{field}` has {bytes} bytes, but up to {limit} are allowed"
        ))),
        None => Ok(value),
    }
}

/// Defines a function for `#[serde(deserialize_with)]` per field. The number is the maximum length in bytes.
macro_rules! fields {
    ($($field:ident: $limit:expr),* $(,)?) => {$(
        pub(crate) fn $field<'de, T, D>(from: D) -> Result<T, D::Error>
        where
            T: Deserialize<'de> + Texts,
            D: Deserializer<'de>,
        {
            bounded(from, stringify!($field), $limit)
        }
    )*};
}

fields! {
    root: ROOT,
    split: CUT,
    cuts: CUT,
    name: NAME,
    sha256: SHA256,
    parameters: PARAMETERS,
    key: KEY,
    etag: KEY,
    data: ROOT,
}

#[cfg(test)]
mod tests {
    use crate::{
        DescriptionRequest, Encoding, ExtractionRequest, NewTenant, ProfileRequest, RequestedSample, Split,
        TenantChange, UploadRef,
    };
    use frostline_tensor::{Precision, SampleRef, Terms};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    fn text() -> String {
        "a".to_owned()
    }

    fn upload() -> UploadRef {
        UploadRef {
            name: text(),
            sha256: text(),
        }
    }

    fn samples() -> Vec<RequestedSample> {
        let sample = SampleRef {
            key: text(),
            etag: Some(text()),
        };
        vec![RequestedSample { position: 0, sample }]
    }

    /// Returns the JSON pointers to all texts in a value.
    fn pointers(value: &Value, at: &str) -> Vec<String> {
        match value {
            Value::String(_) => vec![at.to_owned()],
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .flat_map(|(index, item)| pointers(item, &format!("{at}/{index}")))
                    .collect()
            }
            Value::Object(fields) => {
                let fields = fields.iter();
                fields
                    .flat_map(|(name, field)| pointers(field, &format!("{at}/{name}")))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Checks that `request`, which has all optional fields, is refused with any text of a megabyte.
    fn assert_bounded<T: Serialize + DeserializeOwned>(request: &T, texts: usize) {
        let json = serde_json::to_value(request).unwrap();
        let pointers = pointers(&json, "");
        assert_eq!(pointers.len(), texts, "{pointers:?}");
        for pointer in pointers {
            let mut long = json.clone();
            *long.pointer_mut(&pointer).unwrap() = "x".repeat(1 << 20).into();
            let error = serde_json::from_value::<T>(long)
                .err()
                .map(|error| error.to_string());
            let error = error.unwrap_or_else(|| panic!("{pointer} is unbounded"));
            assert!(error.len() < 1024, "{pointer}: {} bytes", error.len());
        }
    }

    // The requests are complete, so a new field does not compile until it is added here.
    #[test]
    fn each_text_of_a_request_has_a_bound() {
        let extraction = ExtractionRequest {
            root: text(),
            split: Split::Cut(text()),
            guest: Some(upload()),
            model: Some(upload()),
            parameters: text(),
            encoding: Encoding::F32,
            terms: Terms::default(),
            view: None,
            digests: true,
            samples: samples(),
        };
        assert_bounded(&extraction, 10);
        let profile = ProfileRequest {
            root: text(),
            guest: upload(),
            model: upload(),
            parameters: text(),
            cuts: vec![text()],
            samples: samples(),
            view: None,
            precision: Precision::Full,
            wait_seconds: None,
        };
        assert_bounded(&profile, 9);
        let description = DescriptionRequest {
            guest: upload(),
            model: upload(),
            parameters: text(),
        };
        assert_bounded(&description, 5);
        let tenant = NewTenant {
            name: text(),
            data: vec![text()],
            token_seconds: None,
            unchecked: false,
        };
        assert_bounded(&tenant, 2);
        let change = TenantChange {
            data: Some(vec![text()]),
            disabled: None,
            removed: None,
            unchecked: false,
        };
        assert_bounded(&change, 1);
    }

    #[test]
    fn a_refusal_names_the_field_and_the_limit() {
        let json = format!(r#"{{"root":"","split":"{}","samples":[]}}"#, "x".repeat(1025));
        let error = serde_json::from_str::<ExtractionRequest>(&json)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`split` has 1025 bytes, but up to 1024"),
            "{error}"
        );
        let json = format!(r#"{{"position":0,"key":"a","etag":"{}"}}"#, "x".repeat(1025));
        let error = serde_json::from_str::<RequestedSample>(&json)
            .unwrap_err()
            .to_string();
        assert!(error.contains("`etag`"), "{error}");
        let many = serde_json::json!({ "data": vec!["a"; 1025] });
        let error = serde_json::from_value::<TenantChange>(many)
            .unwrap_err()
            .to_string();
        assert!(error.contains("`data` has 1025 texts"), "{error}");
    }
}
