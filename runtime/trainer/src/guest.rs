use crate::TrainerError;
use bytes::Bytes;
use frostline_client::SampleFiles;
use frostline_graph::Network;
use frostline_tensor::PixelSpec;
use frostline_wire::{Activation, Description, Pixels, ServedCut};
use std::fs;
use std::path::Path;

/// Component of the stock guest, committed next to the sources.
static STOCK: &[u8] = include_bytes!("../../../guest/prefix/prefix.wasm");

/// A guest component (or core module) with parameters.
#[derive(Clone)]
pub struct Guest {
    /// Name on the host, to which a content hash is appended.
    pub name: String,
    /// Bytes of the component.
    pub bytes: Bytes,
    /// Parameters passed to the guest unchanged. `None` passes the job's `PixelSpec` as JSON, as the stock
    /// guest expects.
    pub parameters: Option<String>,
}

impl Guest {
    /// Returns the stock guest: torchvision's preprocessing, followed by the layers before any cut.
    pub fn stock() -> Self {
        Self {
            name: "prefix".to_owned(),
            bytes: Bytes::from_static(STOCK),
            parameters: None,
        }
    }

    /// Reads the guest in `file`, or uses the stock guest, and sets `parameters`.
    ///
    /// # Errors
    /// Returns [`TrainerError::File`] if the file cannot be read.
    pub fn read(file: Option<&Path>, parameters: Option<&str>) -> Result<Self, TrainerError> {
        let parameters = parameters.map(str::to_owned);
        let Some(file) = file else {
            return Ok(Self {
                parameters,
                ..Self::stock()
            });
        };
        let bytes = fs::read(file).map_err(|error| TrainerError::file("guest", file, &error))?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: stem.to_lowercase().replace('_', "-"),
            bytes: bytes.into(),
            parameters,
        })
    }

    /// Returns the object types that the guest can read. Guests other than the stock guest may read any
    /// object.
    pub(crate) fn takes(&self) -> SampleFiles {
        if self.bytes == STOCK {
            SampleFiles::Images
        } else {
            SampleFiles::All
        }
    }

    /// Returns true for the stock guest with default parameters, which has a known description.
    pub fn is_stock(&self) -> bool {
        self.parameters.is_none() && self.bytes == STOCK
    }
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.bytes.len();
        f.debug_struct("Guest")
            .field("name", &self.name)
            .field("bytes", &bytes)
            .field("parameters", &self.parameters)
            .finish()
    }
}

/// Returns the stock guest's description for `network` with this preprocessing.
pub(crate) fn stock_description(network: &Network, pixels: PixelSpec) -> Description {
    Description {
        name: "prefix".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pixels: Pixels::Spec(pixels),
        cuts: network
            .cuts
            .iter()
            .map(|cut| ServedCut {
                name: cut.name.clone(),
                activation: Activation::Faithful,
            })
            .collect(),
        media_types: vec!["image/*".to_owned()],
        max_samples: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stock_guest_is_known_unless_told_otherwise() {
        assert!(Guest::stock().is_stock());
        assert!(
            !Guest {
                parameters: Some(String::new()),
                ..Guest::stock()
            }
            .is_stock()
        );
        assert!(Guest::stock().bytes.starts_with(b"\0asm"));
    }
}
