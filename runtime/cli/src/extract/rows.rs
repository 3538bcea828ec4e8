//! Batches of rows as Arrow has them.

use anyhow::{Context, Result, bail};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use frostline_client::Fetched;
use frostline_tensor::Data;
use frostline_wire::ObjectInfo;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of one shape.
pub(super) struct Rows {
    schema: SchemaRef,
    element: FieldRef,
    width: i32,
}

impl Rows {
    /// Rows of `shape` a sample: `key` and `activation`, which are never null, and `label`. An activation is a plain list, its shape the field's
    /// metadata: Hugging Face datasets refuse Arrow's own type of tensors.
    pub(super) fn new(shape: &[usize]) -> Result<Self> {
        let width = i32::try_from(shape.iter().product::<usize>())
            .with_context(|| format!("a row of {shape:?} is larger than Arrow holds"))?;
        // Nullable, though none is: what readers take for the usual element.
        let element = Arc::new(Field::new("item", DataType::Float32, true));
        let metadata = HashMap::from([("shape".to_owned(), serde_json::to_string(shape)?)]);
        let list = DataType::FixedSizeList(Arc::clone(&element), width);
        let fields = vec![
            Field::new("key", DataType::Utf8, false),
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

    /// What came of `samples`, with the label of each by its key.
    pub(super) fn batch(
        &self,
        fetched: Fetched,
        samples: &[ObjectInfo],
        labels: &HashMap<String, String>,
    ) -> Result<RecordBatch> {
        let Fetched { rows, kept, .. } = fetched;
        let Data::F32(values) = rows.into_data() else {
            bail!("rows arrived as something else than f32; this is a fault of Frostline, please report it");
        };
        let key = |index: &usize| samples.get(*index).map(|sample| sample.sample.key.as_str());
        let keys: Vec<&str> = kept.iter().filter_map(key).collect();
        let labels = keys.iter().map(|key| labels.get(*key).map(String::as_str));
        let labels = StringArray::from_iter(labels);
        let values = Float32Array::from(values);
        let values = FixedSizeListArray::try_new(
            Arc::clone(&self.element),
            self.width,
            Arc::new(values) as ArrayRef,
            None,
        )?;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(keys)),
            Arc::new(labels),
            Arc::new(values),
        ];
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}
