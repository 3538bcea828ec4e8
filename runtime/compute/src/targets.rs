use crate::error::ComputeError;
use frostline_tensor::Tensor;
use frostline_training::Loss;

/// Expected outputs for the rows of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// Class index of each row.
    Classes(Vec<i64>),
    /// Label flags or numbers.
    Values {
        /// Values per row.
        width: usize,
        /// Values of all rows, in row-major order.
        values: Vec<f32>,
    },
}

impl Targets {
    fn rows(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Values { width, values } => values.len() / (*width).max(1),
        }
    }

    /// Converts the targets to the form that `loss` requires, for a network with `outputs` outputs. Classes
    /// are one-hot encoded if the loss requires floats.
    pub(crate) fn tensor(self, loss: &Loss, outputs: usize) -> Result<Tensor, ComputeError> {
        let rows = self.rows();
        let values = match self {
            Self::Classes(classes) if loss.takes_classes() => return Ok(Tensor::i64([rows], classes)?),
            Self::Values { values, .. } => values,
            Self::Classes(classes) => {
                let mut hot = vec![0.0; rows * outputs];
                for (row, class) in hot.chunks_mut(outputs.max(1)).zip(&classes) {
                    if let Some(place) = usize::try_from(*class).ok().and_then(|class| row.get_mut(class)) {
                        *place = 1.0;
                    }
                }
                hot
            }
        };
        Ok(Tensor::f32([rows, outputs], values)?)
    }
}
