//! Queries hosts for the shape of the rows at a cut.

use super::{RowKind, Source};
use crate::{ClientError, Hosts};
use frostline_tensor::PixelSpec;
use frostline_wire::{
    Activation, Description, DescriptionRequest, Encoding, ModelInfo, Pixels, Split, TensorInfo, Terms,
    UploadRef, Values,
};
use std::fmt::Display;

/// Request for rows by a caller that does not know the network. [`Inquiry::source`] asks the hosts for the
/// form of the rows.
#[derive(Debug, Clone)]
pub struct Inquiry {
    /// The data root that keys are relative to.
    pub root: String,
    /// Guest that computes the rows. Not needed at the split `none`.
    pub guest: Option<UploadRef>,
    /// Model that the guest executes. Not needed at the split `none`.
    pub model: Option<UploadRef>,
    /// Parameters passed to the guest. The stock guest accepts a [`PixelSpec`] as JSON, or an empty string.
    pub parameters: String,
    /// Encoding of the rows. Ignored at the split `none`, because objects are sent unchanged.
    pub encoding: Encoding,
    /// Priority, fixed batch size and precision for engine batches.
    pub terms: Terms,
    /// Maximum number of samples per request.
    pub request_samples: usize,
}

/// Error of [`Inquiry::source`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InquiryError {
    /// A host failed or refused a request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The split, guest, model and parameters are inconsistent.
    #[error("{0}")]
    Wrong(String),
}

/// Form of a row on arrival, its shape, and the tensors that it concatenates.
type RowForm = (RowKind, Vec<usize>, Vec<TensorInfo>);

impl Inquiry {
    /// Returns the source to request at `split`, including the shape of a sample.
    ///
    /// # Errors
    /// Returns [`InquiryError::Wrong`] if the cut does not exist or the guest does not serve it, and
    /// [`InquiryError::Client`] if a host fails.
    pub async fn source(&self, hosts: &Hosts, split: Split) -> Result<Source, InquiryError> {
        let (rows, shape, tensors) = match (&split, &self.guest, &self.model) {
            (Split::None, None, _) | (Split::None, _, None) => objects(self.default_pixels()?),
            (_, Some(guest), Some(model)) => self.ask(hosts, &split, guest, model).await?,
            (Split::Input | Split::Cut(_), ..) => {
                let needed = "needs a model and a guest on the hosts; push them first";
                return Err(InquiryError::Wrong(format!("the split '{split}' {needed}")));
            }
        };
        let mut source = self.known_source(split, rows, shape);
        source.tensors = tensors;
        if matches!(rows, RowKind::Objects(_)) {
            source.encoding = Encoding::F32;
        }
        Ok(source)
    }

    /// Returns the source of rows of a known `shape` at `split`. No host is asked.
    pub fn known_source(&self, split: Split, rows: RowKind, shape: Vec<usize>) -> Source {
        Source {
            root: self.root.clone(),
            split,
            encoding: self.encoding,
            guest: self.guest.clone(),
            model: self.model.clone(),
            parameters: self.parameters.clone(),
            terms: self.terms,
            view: None,
            rows,
            shape,
            tensors: Vec::new(),
            request_samples: self.request_samples.max(1),
        }
    }

    /// Pixel spec that the stock guest derives from the parameters.
    fn default_pixels(&self) -> Result<PixelSpec, InquiryError> {
        if self.parameters.is_empty() {
            return Ok(PixelSpec::imagenet(224, 224));
        }
        let spec: PixelSpec = serde_json::from_str(&self.parameters).map_err(invalid_spec)?;
        spec.check().map_err(invalid_spec)?;
        Ok(spec)
    }

    async fn ask(
        &self,
        hosts: &Hosts,
        split: &Split,
        guest: &UploadRef,
        model: &UploadRef,
    ) -> Result<RowForm, InquiryError> {
        let request = DescriptionRequest {
            guest: guest.clone(),
            model: model.clone(),
            parameters: self.parameters.clone(),
        };
        let description = hosts.describe(&request).await?;
        match split {
            Split::None => Ok(objects(host_pixels(&description, split)?)),
            Split::Input if self.encoding.values == Values::U8 => {
                let spec = host_pixels(&description, split)?;
                Ok((RowKind::Pixels(spec), spec.sample_shape().to_vec(), Vec::new()))
            }
            Split::Input => {
                let spec = host_pixels(&description, split)?;
                Ok((RowKind::Values, spec.sample_shape().to_vec(), Vec::new()))
            }
            Split::Cut(cut) => {
                let (shape, tensors) = self.row(hosts, &description, model, cut).await?;
                Ok((RowKind::Values, shape, tensors))
            }
        }
    }

    /// Queries the shape of a sample at a cut, and the tensors that it concatenates.
    async fn row(
        &self,
        hosts: &Hosts,
        description: &Description,
        model: &UploadRef,
        cut: &str,
    ) -> Result<(Vec<usize>, Vec<TensorInfo>), InquiryError> {
        let served = description.cuts.iter().find(|served| served.name == cut);
        match served.map(|served| &served.activation) {
            Some(Activation::Custom(tensors)) => {
                let row = TensorInfo::row_shape(tensors);
                row.map(|row| (row.dims().to_vec(), tensors.clone()))
                    .ok_or_else(|| InquiryError::Wrong(format!("rows at cut {cut} exceed the maximum size")))
            }
            Some(Activation::Faithful) => {
                let name = model.name.as_str();
                let info = hosts
                    .first(|client| async move { client.model(name).await })
                    .await?;
                row_in(info.as_ref(), cut).ok_or_else(|| {
                    InquiryError::Wrong(format!("model {name} was deleted on the hosts; push it again"))
                })
            }
            None => {
                let cuts: Vec<&str> = description
                    .cuts
                    .iter()
                    .map(|served| served.name.as_str())
                    .collect();
                Err(InquiryError::Wrong(format!(
                    "the guest {} does not serve the cut '{cut}' of {}; it serves {}",
                    description.name,
                    model.name,
                    shown(&cuts)
                )))
            }
        }
    }
}

fn objects(spec: PixelSpec) -> RowForm {
    (RowKind::Objects(spec), spec.sample_shape().to_vec(), Vec::new())
}

fn row_in(info: Option<&ModelInfo>, cut: &str) -> Option<(Vec<usize>, Vec<TensorInfo>)> {
    let cut = info?.cuts.iter().find(|known| known.name == cut)?;
    Some((cut.shape.clone(), cut.tensors.clone()))
}

/// Maximum number of cuts in an error message. Networks have hundreds.
const NAMED: usize = 12;

fn shown(cuts: &[&str]) -> String {
    match cuts {
        [] => "no cuts".to_owned(),
        cuts if cuts.len() <= NAMED => cuts.join(", "),
        cuts => {
            let last: Vec<&str> = cuts.iter().skip(cuts.len() - NAMED).copied().collect();
            format!("{} cuts, including {}", cuts.len(), last.join(", "))
        }
    }
}

fn invalid_spec(error: impl Display) -> InquiryError {
    InquiryError::Wrong(format!("invalid pixel spec in the parameters: {error}"))
}

/// Returns the spec of the pixels that the host prepares.
fn host_pixels(description: &Description, split: &Split) -> Result<PixelSpec, InquiryError> {
    match description.pixels {
        Pixels::Spec(spec) => Ok(spec),
        Pixels::Own => Err(InquiryError::Wrong(format!(
            "the guest {} prepares the model input itself; use a cut that the guest serves instead of '{split}'",
            description.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostClient;

    fn inquiry(parameters: &str) -> Inquiry {
        Inquiry {
            root: "data".to_owned(),
            guest: None,
            model: None,
            parameters: parameters.to_owned(),
            encoding: Encoding::F16,
            terms: Terms::default(),
            request_samples: 0,
        }
    }

    async fn source(parameters: &str, split: &str) -> Result<Source, InquiryError> {
        let nobody = HostClient::new("http://127.0.0.1:9", None).unwrap();
        inquiry(parameters).source(&nobody.into(), split.into()).await
    }

    #[tokio::test]
    async fn objects_need_no_host_to_be_known() {
        let usual = source("", "none").await.unwrap();
        assert_eq!(usual.shape, [3, 224, 224]);
        assert_eq!((usual.encoding, usual.request_samples), (Encoding::F32, 1));
        let spec = serde_json::to_string(&PixelSpec::imagenet(64, 32)).unwrap();
        assert_eq!(source(&spec, "none").await.unwrap().shape, [3, 64, 32]);
        let error = source("{}", "none").await.unwrap_err().to_string();
        assert!(error.contains("invalid pixel spec"), "{error}");
    }

    #[tokio::test]
    async fn cuts_need_a_model_and_a_guest() {
        for split in ["input", "layer1"] {
            let error = source("", split).await.unwrap_err().to_string();
            assert!(error.contains(split) && error.contains("push"), "{error}");
        }
    }

    #[test]
    fn of_many_cuts_the_last_are_named() {
        assert_eq!(shown(&[]), "no cuts");
        assert_eq!(shown(&["a", "b"]), "a, b");
        let many: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let said = shown(&many);
        assert!(
            said.starts_with("40 cuts") && said.ends_with("c39") && !said.contains("c27"),
            "{said}"
        );
    }
}
