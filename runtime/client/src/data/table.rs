//! Labels from a table: a CSV file with a line a sample, whose first column is the sample's key.

use super::output_number::output_number;
use super::spelling::spellings;
use super::{LabelsError, Part, Task};
use bytes::Bytes;
use frostline_job::Unlisted;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A labels table, parsed for a [`Task`]. The first line names the columns. The first column contains keys
/// relative to the data root.
///
/// The other columns depend on the task. For classes, a single column contains class names. For labels, each
/// column is a label with the values 0 and 1 (or `true` and `false`), as written by scikit-learn's
/// `MultiLabelBinarizer`. For numbers, each column is a target.
///
/// An optional column `split` assigns each sample to `train`, `validation` or `test`. Folder names such as
/// `val` are accepted as well.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelTable {
    /// Name in messages.
    pub(super) name: String,
    pub(super) task: Task,
    /// Sorted class names. For other tasks, column names.
    pub(super) names: Vec<String>,
    /// Row index by key.
    pub(super) rows: HashMap<String, u32>,
    /// Line number of each row in the file.
    pub(super) lines: Vec<u64>,
    /// Class index of each row.
    pub(super) classes: Vec<u32>,
    /// Values of all rows, concatenated.
    pub(super) values: Vec<f32>,
    /// Part for each row, if the table has a `split` column.
    pub(super) parts: Option<Vec<Part>>,
    /// Policy for images without a line.
    pub(super) unlisted: Unlisted,
    /// Name of the first column.
    pub(super) first: String,
}

impl LabelTable {
    /// Key of the table in the data root.
    pub const KEY: &'static str = "labels.csv";
    /// Maximum table size in bytes. This is enough for a million samples.
    pub const MOST_BYTES: u64 = 64 << 20;

    /// Reads a table on this machine, truncated to one byte above the maximum size. [`LabelTable::parse`] rejects
    /// larger tables.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read_file(path: &Path) -> io::Result<Bytes> {
        let mut bytes = Vec::new();
        let file = File::open(path)?;
        file.take(Self::MOST_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Sets the policy for images without a line.
    #[must_use]
    pub fn with_unlisted(self, unlisted: Unlisted) -> Self {
        Self { unlisted, ..self }
    }

    /// Returns the task passed to [`LabelTable::parse`].
    pub fn task(&self) -> Task {
        self.task
    }

    /// Returns the sorted class names. For other tasks, returns the column names in the order of the values.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the part and the class of an image, or `None` if the image has no line. The part is determined
    /// by the `split` column, or is `folder` without this column. The class is empty for tasks other than
    /// classes.
    pub fn get(&self, key: &str, folder: Option<Part>) -> Option<(Option<Part>, &str)> {
        let row = self.row(key)?;
        let part = match &self.parts {
            Some(parts) => parts.get(row as usize).copied(),
            None => folder,
        };
        Some((part, self.class(row)))
    }

    /// Reorders the columns according to `names`. Tables of classes are returned unchanged.
    ///
    /// # Errors
    /// Returns [`LabelsError`] if `names` are not the columns of the table.
    pub fn ordered(mut self, names: &[String]) -> Result<Self, LabelsError> {
        if self.task == Task::Classes || self.names == names {
            return Ok(self);
        }
        let places: Option<Vec<usize>> = names
            .iter()
            .map(|name| self.names.iter().position(|own| own == name))
            .collect();
        let Some(places) = places.filter(|places| places.len() == self.names.len()) else {
            let why = format!(
                "its columns are {}, but the model's are {}; use a table with these columns",
                few(&self.names),
                few(names)
            );
            return Err(LabelsError::new(&self.name, None, why));
        };
        let width = places.len().max(1);
        let rows = self.values.chunks(width);
        let ordered = rows.flat_map(|row| places.iter().filter_map(|place| row.get(*place).copied()));
        self.values = ordered.collect();
        self.names = names.to_vec();
        Ok(self)
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the row of a key. If no key of the table is equal, it may differ in the Unicode normalization.
    pub(super) fn row(&self, key: &str) -> Option<u32> {
        let row = self.rows.get(key);
        let row = row.or_else(|| spellings(key).find_map(|spelling| self.rows.get(&spelling)));
        row.copied()
    }

    /// Returns the class name for a row. For other tasks, returns an empty string.
    pub(super) fn class(&self, row: u32) -> &str {
        let class = self.classes.get(row as usize);
        let name = class.and_then(|class| self.names.get(*class as usize));
        name.map_or("", String::as_str)
    }

    /// Returns true if the class names are all numbers from 0 to the largest, which are the numbers of outputs.
    pub(super) fn is_numbered(&self) -> bool {
        let mut numbers: Vec<Option<usize>> = self.names.iter().map(|name| output_number(name)).collect();
        numbers.sort_unstable();
        self.task == Task::Classes && numbers.into_iter().eq((0..self.names.len()).map(Some))
    }

    /// Returns the line and key of the first row not marked in `seen`.
    pub(super) fn first_without(&self, seen: &[bool]) -> Option<(u64, &str)> {
        let unseen = self
            .rows
            .iter()
            .filter(|(_, row)| seen.get(**row as usize) != Some(&true));
        let lines = unseen.map(|(key, row)| {
            let line = self.lines.get(*row as usize).copied().unwrap_or_default();
            (line, key.as_str())
        });
        lines.min()
    }

    pub(super) fn at(&self, row: u32, why: String) -> LabelsError {
        let line = self.lines.get(row as usize).copied();
        LabelsError::new(&self.name, line, why)
    }

    /// Returns an error if the first line is a sample instead of column names.
    pub(super) fn check_header(&self, mut is_key: impl FnMut(&str) -> bool) -> Result<(), LabelsError> {
        if !is_key(&self.first) {
            return Ok(());
        }
        let why = format!(
            "the first line must name the columns, but starts with the object '{}'; add a header line such as file,label",
            self.first
        );
        Err(LabelsError::new(&self.name, Some(1), why))
    }
}

/// Formats up to eight names for messages.
pub(super) fn few(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    format!("{}{more}", shown.join(", "))
}
