//! Arguments for networks that leave their input or output open.

use clap::Args;
use frostline_graph::Interface;
use frostline_job::flags::positive;

/// Choices for networks that leave their input or output open.
#[derive(Debug, Default, Args)]
pub(crate) struct InterfaceFlags {
    /// Image side in pixels, for networks that support any size
    #[arg(long, value_name = "PIXELS", value_parser = positive)]
    image_size: Option<usize>,
    /// Output to use, for networks with several outputs. Layers and inputs that only other outputs need are
    /// removed
    #[arg(long, value_name = "NAME")]
    output: Option<String>,
}

impl InterfaceFlags {
    pub(crate) fn interface(&self) -> Interface {
        Interface {
            image_size: self.image_size,
            output: self.output.clone(),
        }
    }

    /// Returns the names of the flags that are set.
    pub(crate) fn names(&self) -> Vec<String> {
        let size = self.image_size.map(|_| "image_size");
        let output = self.output.as_ref().map(|_| "output");
        size.into_iter().chain(output).map(str::to_owned).collect()
    }

    pub(crate) fn with_output(&self, name: &str) -> Self {
        Self {
            image_size: self.image_size,
            output: Some(name.to_owned()),
        }
    }
}
