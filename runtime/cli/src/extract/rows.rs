//! Batches of rows as Arrow has them.

use super::cached::BatchRows;
use anyhow::{Context, Result};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use frostline_client::Part;
use std::collections::HashMap;
use std::sync::Arc;

/// What the place of a sample says of it.
pub(super) struct Place {
    pub(super) part: Option<Part>,
    /// Its class.
    pub(super) label: Option<String>,
}

/// Rows of one shape.
pub(super) struct Rows {
    schema: SchemaRef,
    element: FieldRef,
    width: i32,
}

impl Rows {
    /// Rows of `shape` a sample: `key` and `activation`, which are never null, and `split` and `label`, which are where the place of a
    /// sample says none. An activation is a plain list, its shape the field's metadata: Hugging Face datasets refuse Arrow's own type of
    /// tensors.
    pub(super) fn new(shape: &[usize]) -> Result<Self> {
        let width = i32::try_from(shape.iter().product::<usize>())
            .with_context(|| format!("a row of {shape:?} is larger than Arrow holds"))?;
        // Nullable, though none is: what readers take for the usual element.
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

    /// The rows of a batch, with what the place of each sample says by its key.
    pub(super) fn batch(&self, rows: &BatchRows, places: &HashMap<String, Place>) -> Result<RecordBatch> {
        let (keys, values) = rows.rows();
        let places = || keys.iter().map(|key| places.get(*key));
        let splits = places().map(|place| place?.part.map(Part::name));
        let splits = StringArray::from_iter(splits);
        let labels = StringArray::from_iter(places().map(|place| place?.label.as_deref()));
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
