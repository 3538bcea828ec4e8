use crate::TrainerError;
use frostline_client::Samples;
use frostline_tensor::Tensor;
use frostline_training::Loss;

/// What the rows of a batch are to come out as.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Targets {
    /// The number of each row's class.
    Classes(Vec<i64>),
    /// Flags or numbers.
    Values {
        /// Of a row.
        width: usize,
        /// Those of one row after those of another.
        values: Vec<f32>,
    },
}

impl Targets {
    /// Of the samples of these numbers.
    pub(crate) fn from_samples(samples: &Samples, numbers: impl Iterator<Item = usize> + Clone) -> Self {
        let values: Vec<f32> = numbers
            .clone()
            .filter_map(|number| samples.values(number))
            .flatten()
            .copied()
            .collect();
        let width = numbers
            .clone()
            .find_map(|number| samples.values(number).map(<[f32]>::len));
        match width {
            Some(width) => Self::Values { width, values },
            None => Self::Classes(
                numbers
                    .filter_map(|number| samples.label(number))
                    .map(i64::from)
                    .collect(),
            ),
        }
    }

    /// How many rows they are for.
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Values { width, values } => values.len() / (*width).max(1),
        }
    }

    /// As `loss` takes them from a network with so many outputs: classes as a 1 among zeros where it takes floats.
    pub(crate) fn tensor(self, loss: &Loss, outputs: usize) -> Result<Tensor, TrainerError> {
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
