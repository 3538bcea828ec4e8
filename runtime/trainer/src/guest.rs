use crate::TrainerError;
use bytes::Bytes;
use frostline_client::SampleFiles;
use frostline_graph::{Cut, Network};
use frostline_tensor::PixelSpec;
use frostline_wire::{Activation, Description, Pixels, ServedCut};
use std::fs;
use std::path::Path;

/// The stock guest's component, as committed beside its sources.
static STOCK: &[u8] = include_bytes!("../../../guest/prefix/prefix.wasm");

/// A guest component (or core module) and its parameters.
#[derive(Clone)]
pub struct Guest {
    /// What to call it on the host; what its content is follows the name there.
    pub name: String,
    /// The component's bytes.
    pub bytes: Bytes,
    /// Passed to the guest as it is; `None` passes the job's `PixelSpec` as JSON, which the stock guest takes.
    pub parameters: Option<String>,
}

impl Guest {
    /// The guest that comes with Frostline: torchvision's preprocessing, then the layers up to any cut.
    pub fn stock() -> Self {
        Self {
            name: "prefix".to_owned(),
            bytes: Bytes::from_static(STOCK),
            parameters: None,
        }
    }

    /// Reads the guest in `file`, or takes the stock one, to be told `parameters`.
    ///
    /// # Errors
    /// [`TrainerError::File`].
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

    /// Which objects it can read: of another guest than the stock one, only its author knows.
    pub(crate) fn takes(&self) -> SampleFiles {
        if self.bytes == STOCK {
            SampleFiles::Images
        } else {
            SampleFiles::All
        }
    }

    /// Whether this is the stock guest as the trainer would tell it: then what it answers is known without asking.
    pub fn is_stock(&self) -> bool {
        self.parameters.is_none() && self.bytes == STOCK
    }
}

impl Default for Guest {
    fn default() -> Self {
        Self::stock()
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

/// What the stock guest says about a network whose pixels are made so.
pub(crate) fn stock_description(network: &Network, pixels: PixelSpec) -> Description {
    let served = |cut: &Cut| ServedCut {
        name: cut.name.clone(),
        activation: Activation::Faithful,
    };
    Description {
        name: "prefix".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pixels: Pixels::Spec(pixels),
        cuts: network.cuts.iter().map(served).collect(),
        augments: true,
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
