//! Implements the descriptions that guests fill. Every value is checked when it is set.

use crate::bindings::frostline::pushdown::{descriptions, images, tensors};
use crate::breach::ImportError;
use crate::description_builder::DescriptionBuilder;
use crate::imports::pixel_spec;
use crate::state::CallState;
use crate::tensors::dtype_of;
use crate::text::{check_name, one_line};
use frostline_tensor::{OpError, OpErrorCode};
use frostline_wire::{Activation, Pixels, TensorInfo};
use wasmtime::component::Resource;

/// Maximum length of guest names and versions in bytes. Both appear in tables and messages.
const MAX_NAME_BYTES: usize = 64;
/// Maximum number of dimensions of an activation. ONNX models rarely have more than six.
const MAX_RANK: usize = 8;
/// Maximum number of tensors at a cut.
const MAX_TENSORS: usize = 8;
/// Maximum number of media types. A guest for images of all kinds has one, `image/*`.
const MAX_MEDIA_TYPES: usize = 16;
/// Maximum length of a media type in bytes. The longest registered types have about 80.
const MAX_MEDIA_TYPE_BYTES: usize = 128;

type Handle = Resource<DescriptionBuilder>;

impl descriptions::Host for CallState {}

impl descriptions::HostDescription for CallState {
    fn set_name(&mut self, handle: Handle, name: String, version: String) -> wasmtime::Result<()> {
        let builder = self.table.get_mut(&handle)?;
        builder.description.name = one_line(&name, MAX_NAME_BYTES);
        builder.description.version = one_line(&version, MAX_NAME_BYTES);
        Ok(())
    }

    fn set_media_types(&mut self, handle: Handle, types: Vec<String>) -> Result<(), ImportError> {
        check_media_types(&types)?;
        self.table.get_mut(&handle)?.description.media_types = types;
        Ok(())
    }

    fn set_recipe(&mut self, handle: Handle, recipe: images::Recipe) -> Result<(), ImportError> {
        let spec = pixel_spec(&recipe);
        spec.check().map_err(OpError::from)?;
        self.table.get_mut(&handle)?.description.pixels = Pixels::Spec(spec);
        Ok(())
    }

    fn set_max_samples(&mut self, handle: Handle, count: u32) -> Result<(), ImportError> {
        if count == 0 {
            return Err(OpError::invalid("the maximum number of samples must be at least 1").into());
        }
        self.table.get_mut(&handle)?.description.max_samples = Some(count);
        Ok(())
    }

    fn serve(&mut self, handle: Handle, cut: String) -> Result<(), ImportError> {
        Ok(self.table.get_mut(&handle)?.serve(cut, Activation::Faithful)?)
    }

    fn serve_custom(
        &mut self,
        handle: Handle,
        cut: String,
        tensors: Vec<tensors::TensorInfo>,
    ) -> Result<(), ImportError> {
        let activation = Activation::Custom(custom_tensors(&cut, tensors)?);
        Ok(self.table.get_mut(&handle)?.serve(cut, activation)?)
    }

    fn drop(&mut self, handle: Handle) -> wasmtime::Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

fn check_media_types(types: &[String]) -> Result<(), OpError> {
    if types.len() > MAX_MEDIA_TYPES {
        return Err(OpError::invalid(format!(
            "{} media types exceed the limit of {MAX_MEDIA_TYPES}",
            types.len()
        )));
    }
    for media_type in types {
        let is_valid = media_type.len() <= MAX_MEDIA_TYPE_BYTES
            && media_type.bytes().all(|byte| byte.is_ascii_graphic())
            && media_type
                .split_once('/')
                .is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty());
        if !is_valid {
            return Err(OpError::invalid(format!(
                "invalid media type {:?}, expected a type such as image/jpeg",
                one_line(media_type, MAX_MEDIA_TYPE_BYTES)
            )));
        }
    }
    Ok(())
}

/// Checks the tensors of a guest at a cut. Together, they must fit into a row.
fn custom_tensors(cut: &str, tensors: Vec<tensors::TensorInfo>) -> Result<Vec<TensorInfo>, OpError> {
    let count = tensors.len();
    if count == 0 || count > MAX_TENSORS {
        return Err(OpError::invalid(format!(
            "a cut has 1 to {MAX_TENSORS} tensors, not {count}"
        )));
    }
    let mut checked: Vec<TensorInfo> = Vec::new();
    for tensor in tensors {
        check_name(&tensor.name)?;
        if checked.iter().any(|other| other.name == tensor.name) {
            return Err(OpError::invalid(format!("duplicate tensor {:?}", tensor.name)));
        }
        let shape: Result<Vec<usize>, _> = tensor.shape.iter().map(|&dim| usize::try_from(dim)).collect();
        checked.push(TensorInfo {
            name: tensor.name,
            dtype: dtype_of(tensor.element_type),
            shape: shape.unwrap_or_default(),
        });
        if tensor.shape.len() > MAX_RANK || tensor.shape.contains(&0) {
            return Err(invalid_shape(cut, &tensor.shape));
        }
    }
    // A row on the wire has up to `i32::MAX` elements.
    let elements = TensorInfo::row_shape(&checked).and_then(|row| row.elements().ok());
    if elements.is_none_or(|elements| i32::try_from(elements).is_err()) {
        let largest = checked.iter().flat_map(|tensor| &tensor.shape);
        let dims: Vec<u32> = largest.filter_map(|&dim| u32::try_from(dim).ok()).collect();
        return Err(invalid_shape(cut, &dims));
    }
    Ok(checked)
}

fn invalid_shape(cut: &str, dims: &[u32]) -> OpError {
    let dims = dims.get(..MAX_RANK.min(dims.len())).unwrap_or_default();
    OpError::new(
        OpErrorCode::InvalidArgument,
        format!(
            "invalid activation shape {dims:?} at {:?}",
            one_line(cut, MAX_NAME_BYTES)
        ),
    )
}
