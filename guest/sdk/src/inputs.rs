//! Helpers for guests that serve all cuts of a model, and for images.

use crate::{
    ChannelOrder, Description, ElementType, Error, Extracted, FailedSample, Interpolation, Job, Model,
    Recipe, ResizeMode, Tensor, TensorInfo, stage,
};

impl Description {
    /// Serves all cuts of `model` with the activations of the model.
    ///
    /// # Errors
    /// Returns the first error of [`Description::serve`].
    pub fn serve_all(&self, model: &Model) -> Result<(), Error> {
        model.cuts.iter().try_for_each(|cut| self.serve(&cut.name))
    }
}

impl Job {
    /// Runs the layers up to the cut on `batches`, which are the inputs of the model in the order of
    /// [`Job::inputs`]. Consumes the batches, even on failure. `failed` is the list of failed samples.
    ///
    /// # Errors
    /// Returns the error of the host's engine.
    pub fn run(&self, batches: Vec<Tensor>, failed: Vec<FailedSample>) -> Result<Extracted, Error> {
        let names = self.inputs.iter().map(|input| input.name.clone());
        let tensors = stage::run(&self.graph, names.zip(batches).collect())?;
        Ok(Extracted { tensors, failed })
    }
}

impl TensorInfo {
    /// Returns the number of bytes of a sample.
    ///
    /// # Errors
    /// Returns `too-large` if the number exceeds 32 bits.
    pub fn sample_bytes(&self) -> Result<u32, Error> {
        let size = match self.element_type {
            ElementType::Uint8 => 1,
            ElementType::Float16 | ElementType::Bfloat16 => 2,
            ElementType::Int32 | ElementType::Float32 => 4,
            ElementType::Int64 | ElementType::Float64 => 8,
        };
        let bytes = self
            .shape
            .iter()
            .try_fold(size, |bytes: u32, &dim| bytes.checked_mul(dim));
        bytes.ok_or_else(|| {
            Error::new(
                crate::ErrorCode::TooLarge,
                format!("a sample of the tensor {} exceeds the guest's memory", self.name),
            )
        })
    }
}

impl Recipe {
    /// Returns the preprocessing of ImageNet for crops of this size. It resizes the short side to 8/7 of the
    /// longer crop side, for example to 256 for a crop of 224.
    pub fn imagenet(height: u32, width: u32) -> Self {
        let side = u64::from(height.max(width));
        Self {
            resize: u32::try_from((side * 8).div_ceil(7)).unwrap_or(u32::MAX),
            crop_height: height,
            crop_width: width,
            mean: (0.485, 0.456, 0.406),
            std: (0.229, 0.224, 0.225),
            interpolation: Interpolation::Bilinear,
            resize_mode: ResizeMode::Short,
            fill: (0, 0, 0),
            channels: ChannelOrder::Rgb,
        }
    }
}

/// Returns height and width of the images that a model with these `inputs` takes.
///
/// # Errors
/// Returns `invalid-argument` if the model has other inputs than one RGB image, `float32[3, height, width]`.
pub fn image_size(inputs: &[TensorInfo]) -> Result<(u32, u32), Error> {
    if let [
        TensorInfo {
            element_type: ElementType::Float32,
            shape,
            ..
        },
    ] = inputs
        && let &[3, height, width] = shape.as_slice()
    {
        return Ok((height, width));
    }
    let shapes: Vec<String> = inputs
        .iter()
        .map(|input| format!("{}{:?}", input.name, input.shape))
        .collect();
    Err(Error::invalid(format!(
        "this guest serves models of RGB images, [3, height, width] per sample, but the input of this model is {}: write a guest \
         for this model",
        shapes.join(", ")
    )))
}
