use crate::tensor_info::TensorInfo;
use frostline_tensor::{DType, Shape};

/// A point at which the network can be split because a single tensor carries all data across it.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// Name of the tensor.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape per sample, without the batch axis.
    pub shape: Shape,
    /// Bytes for one sample.
    pub bytes_per_sample: usize,
    /// Fraction of the network's multiply-adds before the cut, between 0 and 1.
    pub compute_share: f64,
    /// True if the classifier head comes after the cut. Only such a cut can be a freeze cut.
    pub before_head: bool,
    /// Paths of the source modules that output this tensor, outermost first. Users can refer to the cut by
    /// these names. Empty if the exporter recorded no modules.
    pub modules: Vec<String>,
    /// Tensors that a joint cut contains, in the order in which they are concatenated. Booleans have the type `u8`. Empty
    /// for a single tensor.
    pub tensors: Vec<TensorInfo>,
}

impl Cut {
    /// Returns the bytes of memory used by the cut with the names and shapes of its tensors.
    pub(crate) fn kept_bytes(&self) -> usize {
        let tensors = self.tensors.iter();
        let tensors =
            tensors.map(|tensor| size_of_val(tensor) + tensor.name.len() + size_of_val(tensor.shape.dims()));
        size_of::<Self>() + self.name.len() + size_of_val(self.shape.dims()) + tensors.sum::<usize>()
    }

    /// Returns true for a cut through several tensors, see [`Model::with_cut`](crate::Model::with_cut).
    pub fn is_joint(&self) -> bool {
        self.name.contains(',')
    }

    /// Returns true if the tensor is the output of the module `path`.
    pub(crate) fn is_of(&self, path: &str) -> bool {
        self.modules.iter().any(|module| module == path)
    }

    /// Returns true if the tensor is the output of a module nested in `path`.
    pub(crate) fn is_within(&self, path: &str) -> bool {
        self.modules.iter().any(|module| {
            let rest = module.strip_prefix(path);
            rest.is_some_and(|rest| rest.starts_with('.'))
        })
    }
}

impl From<TensorInfo> for Cut {
    /// Describes a cut of which only the tensor is known.
    fn from(tensor: TensorInfo) -> Self {
        Self {
            bytes_per_sample: tensor.bytes_per_sample(),
            name: tensor.name,
            dtype: tensor.dtype,
            shape: tensor.shape,
            compute_share: 0.0,
            before_head: false,
            modules: Vec::new(),
            tensors: Vec::new(),
        }
    }
}
