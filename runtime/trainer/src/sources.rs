use crate::TrainerError;
use frostline_client::{RowKind, Source};
use frostline_graph::Network;
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, Pin, Split, Values};

/// What to ask the host for at any split of one job.
pub(crate) struct Sources {
    pub(crate) root: String,
    pub(crate) guest: Option<Pin>,
    pub(crate) model: Option<Pin>,
    pub(crate) parameters: String,
    /// How objects become pixels; `None` when only the guest knows.
    pub(crate) pixels: Option<PixelSpec>,
    pub(crate) network: Network,
}

impl Sources {
    /// Rows at `split` in `encoding`, at most `request_samples` a request.
    ///
    /// # Errors
    /// [`TrainerError::Model`] for a cut the network does not have.
    pub(crate) fn at(
        &self,
        split: &Split,
        encoding: Encoding,
        request_samples: usize,
    ) -> Result<Source, TrainerError> {
        let input = || self.network.input.shape.dims().to_vec();
        let (rows, shape) = match (split, self.pixels) {
            (Split::Cut(name), _) => (RowKind::Values, self.network.cut(name)?.shape.dims().to_vec()),
            (Split::None, Some(spec)) => (RowKind::Objects(spec), input()),
            (Split::Input, Some(spec)) if encoding.values == Values::U8 => (RowKind::Pixels(spec), input()),
            _ => (RowKind::Values, input()),
        };
        Ok(Source {
            root: self.root.clone(),
            split: split.clone(),
            encoding,
            guest: self.guest.clone(),
            model: self.model.clone(),
            parameters: self.parameters.clone(),
            rows,
            shape,
            request_samples: request_samples.max(1),
        })
    }
}
