//! Conversion of batches to Arrow record batches.

use anyhow::{Context, Result};
use arrow_array::types::{Int32Type, Int64Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use frostline_client::Part;
use frostline_tensor::DType;
use frostline_wire::TensorInfo;
use std::collections::HashMap;
use std::sync::Arc;

/// Split and label of a sample.
pub(super) struct SampleAnnotation {
    pub(super) part: Option<Part>,
    /// The class.
    pub(super) label: Option<String>,
}

/// Schema of record batches for activations with a fixed shape.
pub(super) struct RowSchema {
    schema: SchemaRef,
    tensors: Vec<TensorColumn>,
}

/// Column of a tensor.
struct TensorColumn {
    element: FieldRef,
    width: i32,
}

impl RowSchema {
    /// Creates the schema for activations of `shape`, or for rows that concatenate `tensors`. The column `key` and
    /// those of activations are never null. The columns `split` and `label` may be null. Activations are plain
    /// lists, with the shape in the metadata of the field, because Hugging Face datasets does not support Arrow's
    /// tensor type.
    pub(super) fn new(shape: &[usize], tensors: &[TensorInfo]) -> Result<Self> {
        let mut fields = vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("split", DataType::Utf8, true),
            Field::new("label", DataType::Utf8, true),
        ];
        let mut columns = Vec::new();
        let mut add = |name: &str, dtype, shape: &[usize]| -> Result<()> {
            let column = TensorColumn::new(dtype, shape)?;
            fields.push(column.field(name, shape)?);
            columns.push(column);
            Ok(())
        };
        match tensors {
            [] => add("activation", DType::F32, shape)?,
            tensors => {
                for tensor in tensors {
                    add(
                        &format!("activation/{}", tensor.name),
                        tensor.dtype,
                        &tensor.shape,
                    )?;
                }
            }
        }
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            tensors: columns,
        })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Creates the record batch of activations with these keys. A row in `values` concatenates its tensors. `places`
    /// contains split and label by key.
    pub(super) fn batch(
        &self,
        keys: Vec<&str>,
        values: Vec<f32>,
        places: &HashMap<String, SampleAnnotation>,
    ) -> Result<RecordBatch> {
        let places = keys.iter().map(|key| places.get(*key));
        let splits = places.clone().map(|place| place?.part.map(Part::name));
        let splits = StringArray::from_iter(splits);
        let labels = StringArray::from_iter(places.map(|place| place?.label.as_deref()));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(keys)),
            Arc::new(splits),
            Arc::new(labels),
        ];
        let values = Float32Array::from(values);
        match self.tensors.as_slice() {
            [tensor] => columns.push(tensor.list(values)?),
            tensors => {
                let row: usize = tensors.iter().map(TensorColumn::width).sum();
                let mut start = 0;
                for tensor in tensors {
                    let end = start + tensor.width();
                    let rows = values.values().chunks(row.max(1));
                    let own = rows.flat_map(|row| row.get(start..end).unwrap_or_default());
                    columns.push(tensor.list(Float32Array::from_iter_values(own.copied()))?);
                    start = end;
                }
            }
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

impl TensorColumn {
    fn new(dtype: DType, shape: &[usize]) -> Result<Self> {
        let width = i32::try_from(shape.iter().product::<usize>())
            .with_context(|| format!("an activation of shape {shape:?} is too large for Arrow"))?;
        let element = match dtype {
            DType::U8 => DataType::UInt8,
            DType::I32 => DataType::Int32,
            DType::I64 => DataType::Int64,
            _ => DataType::Float32,
        };
        // Nullable because most readers expect this for list elements, although no element is null.
        let element = Arc::new(Field::new("item", element, true));
        Ok(Self { element, width })
    }

    fn field(&self, name: &str, shape: &[usize]) -> Result<Field> {
        let metadata = HashMap::from([("shape".to_owned(), serde_json::to_string(shape)?)]);
        let list = DataType::FixedSizeList(Arc::clone(&self.element), self.width);
        Ok(Field::new(name, list, false).with_metadata(metadata))
    }

    /// Number of elements of a sample.
    fn width(&self) -> usize {
        usize::try_from(self.width).unwrap_or(0)
    }

    /// Creates the column from the elements of all samples.
    fn list(&self, values: Float32Array) -> Result<ArrayRef, ArrowError> {
        let values: ArrayRef = match self.element.data_type() {
            DataType::UInt8 => Arc::new(values.unary::<_, UInt8Type>(|value| value as u8)),
            DataType::Int32 => Arc::new(values.unary::<_, Int32Type>(|value| value as i32)),
            DataType::Int64 => Arc::new(values.unary::<_, Int64Type>(|value| value as i64)),
            _ => Arc::new(values),
        };
        let list = FixedSizeListArray::try_new(Arc::clone(&self.element), self.width, values, None)?;
        Ok(Arc::new(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;

    #[test]
    fn each_tensor_of_a_row_has_a_column_of_its_type() {
        let tensor = |name: &str, dtype, shape: &[usize]| TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        };
        let tensors = [
            tensor("x", DType::F32, &[2, 1]),
            tensor("ids", DType::I64, &[1]),
            tensor("mask", DType::U8, &[2]),
        ];
        let rows = RowSchema::new(&[5], &tensors).unwrap();
        let values = vec![0.5, -1.5, 16_777_216.0, 1.0, 0.0, 2.5, 3.5, -7.0, 0.0, 1.0];
        let batch = rows.batch(vec!["a", "b"], values, &HashMap::new()).unwrap();
        let column = |name: &str| {
            let list = batch.column_by_name(name).unwrap().as_fixed_size_list();
            (list.value_length(), Arc::clone(list.values()))
        };
        let (length, x) = column("activation/x");
        assert_eq!(length, 2);
        let x = x.as_primitive::<arrow_array::types::Float32Type>();
        assert_eq!(x.values().to_vec(), [0.5, -1.5, 2.5, 3.5]);
        let (length, ids) = column("activation/ids");
        assert_eq!(length, 1);
        assert_eq!(
            ids.as_primitive::<Int64Type>().values().to_vec(),
            [16_777_216, -7]
        );
        let (length, mask) = column("activation/mask");
        assert_eq!(length, 2);
        assert_eq!(mask.as_primitive::<UInt8Type>().values().to_vec(), [1, 0, 0, 1]);
        let schema = rows.schema();
        let shape = &schema.field_with_name("activation/x").unwrap().metadata()["shape"];
        assert_eq!(shape, "[2,1]");
    }
}
