//! Implements tensors of guests. Every tensor is charged to the extraction, including copies and parts.

use crate::allowance::Charge;
use crate::bindings::frostline::pushdown::tensors;
use crate::breach::{self, ImportError, check_limit};
use crate::nn::{check_shape, dims};
use crate::state::{CallState, GuestTensor};
use frostline_tensor::{DType, Data, OpError, Shape, Tensor};
use std::ops::Range;
use wasmtime::component::Resource;

type Handle = Resource<GuestTensor>;

impl tensors::Host for CallState {}

impl tensors::HostTensor for CallState {
    fn zeros(&mut self, element_type: tensors::ElementType, shape: Vec<u32>) -> Result<Handle, ImportError> {
        let dtype = dtype_of(element_type);
        let shape = check_shape(&shape)?;
        let charge = self.charge(&shape, dtype)?;
        let tensor = Tensor::in_memory_of(None, dtype, shape).map_err(OpError::from)?;
        self.push_tensor(tensor, None, charge)
    }

    fn from_bytes(
        &mut self,
        element_type: tensors::ElementType,
        shape: Vec<u32>,
        elements: Vec<u8>,
    ) -> Result<Handle, ImportError> {
        let dtype = dtype_of(element_type);
        let shape = check_shape(&shape)?;
        let needed = shape.bytes(dtype.size()).map_err(OpError::from)?;
        if elements.len() != needed {
            return Err(OpError::invalid(format!(
                "{dtype}{shape} needs {needed} bytes, but {} were given",
                elements.len()
            ))
            .into());
        }
        let charge = self.charge(&shape, dtype)?;
        let data =
            Data::from_bytes(dtype, &elements).ok_or_else(|| OpError::invalid("incomplete elements"))?;
        let tensor = Tensor::new(shape, data).map_err(OpError::from)?;
        self.push_tensor(tensor, None, charge)
    }

    fn concat(&mut self, handles: Vec<Handle>) -> Result<Handle, ImportError> {
        let mut bytes = 0_usize;
        for handle in &handles {
            bytes = bytes.saturating_add(self.floats(handle)?.byte_len());
        }
        let charge = self.extraction()?.context.allowance.charge_tensor(bytes)?;
        let mut batches = Vec::new();
        for handle in &handles {
            batches.push(&self.table.get(handle)?.tensor);
        }
        let joined = Tensor::concat_rows(&batches).map_err(OpError::from)?;
        self.push_tensor(joined, None, charge)
    }

    fn from_nn(&mut self, tensor: Handle) -> wasmtime::Result<Handle> {
        // Both interfaces have the same handles.
        Ok(tensor)
    }

    fn into_nn(&mut self, tensor: Handle) -> wasmtime::Result<Handle> {
        Ok(tensor)
    }

    fn shape(&mut self, tensor: Handle) -> wasmtime::Result<Vec<u32>> {
        dims(self.table.get(&tensor)?)
    }

    fn element_type(&mut self, tensor: Handle) -> wasmtime::Result<tensors::ElementType> {
        Ok(element_type_of(self.table.get(&tensor)?.dtype()))
    }

    fn read(&mut self, tensor: Handle, offset: u64, length: u64) -> Result<Vec<u8>, ImportError> {
        let cap = self.memory_cap as u64;
        let bytes = self.floats(&tensor)?.as_bytes();
        let part = bytes
            .get(range_in(bytes.len(), offset, length)?)
            .unwrap_or_default();
        check_limit(breach::Resource::Memory, part.len() as u64, cap)?;
        Ok(part.to_vec())
    }

    fn write(&mut self, tensor: Handle, offset: u64, elements: Vec<u8>) -> Result<(), ImportError> {
        let range = range_in(self.floats(&tensor)?.byte_len(), offset, elements.len() as u64)?;
        let bytes = self.table.get_mut(&tensor)?.tensor.as_bytes_mut();
        if let Some(part) = bytes.get_mut(range) {
            part.copy_from_slice(&elements);
        }
        Ok(())
    }

    fn slice(&mut self, tensor: Handle, start: u32, end: u32) -> Result<Handle, ImportError> {
        let held = self.table.get(&tensor)?;
        let rows = held.tensor.rows().map_err(OpError::from)?;
        let part = as_size(start)..as_size(end);
        if part.start > part.end || part.end > rows {
            return Err(OpError::invalid(format!(
                "rows {start}..{end} are out of range for a batch of {rows}"
            ))
            .into());
        }
        let row = held.tensor.byte_len() / rows.max(1);
        let charge = self
            .extraction()?
            .context
            .allowance
            .charge_tensor(row * part.len())?;
        let held = self.table.get(&tensor)?;
        let pixels = held.pixels;
        let rows = held
            .tensor
            .slice_rows(part.start, part.end)
            .map_err(OpError::from)?;
        self.push_tensor(rows, pixels, charge)
    }

    fn cast(&mut self, tensor: Handle, element_type: tensors::ElementType) -> Result<Handle, ImportError> {
        let dtype = dtype_of(element_type);
        let shape = self.floats(&tensor)?.shape().clone();
        let charge = self.charge(&shape, dtype)?;
        let converted = self.table.get(&tensor)?.tensor.cast(dtype);
        self.push_tensor(converted, None, charge)
    }

    fn drop(&mut self, tensor: Handle) -> wasmtime::Result<()> {
        self.table.delete(tensor)?;
        Ok(())
    }
}

/// Returns a range of bytes in a tensor of `size` bytes.
fn range_in(size: usize, offset: u64, length: u64) -> Result<Range<usize>, OpError> {
    let end = offset.checked_add(length).filter(|end| *end <= size as u64);
    let Some(end) = end else {
        return Err(OpError::invalid(format!(
            "range {offset}+{length} is out of range for {size} bytes"
        )));
    };
    // Both are at most `size`.
    Ok(offset as usize..end as usize)
}

fn as_size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

pub(crate) const fn dtype_of(element_type: tensors::ElementType) -> DType {
    match element_type {
        tensors::ElementType::Uint8 => DType::U8,
        tensors::ElementType::Int32 => DType::I32,
        tensors::ElementType::Int64 => DType::I64,
        tensors::ElementType::Float16 => DType::F16,
        tensors::ElementType::Bfloat16 => DType::Bf16,
        tensors::ElementType::Float32 => DType::F32,
        tensors::ElementType::Float64 => DType::F64,
    }
}

pub(crate) const fn element_type_of(dtype: DType) -> tensors::ElementType {
    match dtype {
        DType::U8 => tensors::ElementType::Uint8,
        DType::I32 => tensors::ElementType::Int32,
        DType::I64 => tensors::ElementType::Int64,
        DType::F16 => tensors::ElementType::Float16,
        DType::Bf16 => tensors::ElementType::Bfloat16,
        DType::F32 => tensors::ElementType::Float32,
        DType::F64 => tensors::ElementType::Float64,
    }
}

impl CallState {
    /// Charges a tensor of this shape to the extraction.
    fn charge(&self, shape: &Shape, dtype: DType) -> Result<Charge, ImportError> {
        let bytes = shape.bytes(dtype.size()).map_err(OpError::from)?;
        Ok(self.extraction()?.context.allowance.charge_tensor(bytes)?)
    }

    /// Returns the elements as they are visible to the guest. Pixels that a stage would normalize are normalized
    /// now, and the difference in size is charged.
    fn floats(&mut self, tensor: &Handle) -> Result<&Tensor, ImportError> {
        let held = self.table.get(tensor)?;
        if held.pixels.is_some() {
            let charge = self.charge(held.tensor.shape(), DType::F32)?;
            let normalized = held.normalized()?.into_owned();
            let held = self.table.get_mut(tensor)?;
            *held = GuestTensor {
                tensor: normalized,
                pixels: None,
                charge,
            };
        }
        Ok(&self.table.get(tensor)?.tensor)
    }
}
