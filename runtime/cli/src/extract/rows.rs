//! Conversion of batches to Arrow record batches.

use anyhow::{Context, Result};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use frostline_client::Part;
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
    element: FieldRef,
    width: i32,
}

impl RowSchema {
    /// Creates the schema for activations of `shape`. The columns `key` and `activation` are never null. The
    /// columns `split` and `label` may be null. Activations are plain lists, with the shape in the metadata
    /// of the field, because Hugging Face datasets does not support Arrow's tensor type.
    pub(super) fn new(shape: &[usize]) -> Result<Self> {
        let width = i32::try_from(shape.iter().product::<usize>())
            .with_context(|| format!("an activation of shape {shape:?} is too large for Arrow"))?;
        // Nullable because most readers expect this for list elements, although no element is null.
        let element = Arc::new(Field::new("item", DataType::Float32, true));
        let metadata = HashMap::from([("shape".to_owned(), serde_json::to_string(shape)?)]);
        let list = DataType::FixedSizeList(Arc::clone(&element), width);
        let fields = vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("split", DataType::Utf8, true),
            Field::new("label", DataType::Utf8, true),
            Field::new("activation", list, false).with_metadata(metadata),
        ];
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            element,
            width,
        })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Creates the record batch of activations with these keys. `places` contains split and label by key.
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
        let values = Float32Array::from(values);
        let values = FixedSizeListArray::try_new(
            Arc::clone(&self.element),
            self.width,
            Arc::new(values) as ArrayRef,
            None,
        )?;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(keys)),
            Arc::new(splits),
            Arc::new(labels),
            Arc::new(values),
        ];
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}
