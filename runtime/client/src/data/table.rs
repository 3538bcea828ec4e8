//! Labels from a table: a CSV file with a line a sample, whose first column is the sample's key.

use super::reading::Reading;
use super::{LabelsError, Part, Task};
use frostline_job::Unlisted;
use std::collections::HashMap;

/// A labels table, read for a [`Task`]. Its first line names its columns, the first of them has keys relative to the data root.
///
/// For classes the second and last column has a class' name; for labels every other column is one, with 0 and 1 (or `true` and `false`), as
/// scikit-learn's `MultiLabelBinarizer` makes them; for numbers every other column is a target.
///
/// A column called `split` says of each sample whether it is for `train`, `validation` or `test`, in the words that folders have.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelTable {
    /// What it is called in messages.
    pub(super) name: String,
    pub(super) task: Task,
    /// Classes, sorted; else the columns.
    pub(super) names: Vec<String>,
    /// The row of a key.
    pub(super) rows: HashMap<String, u32>,
    /// The line of a row in the file.
    pub(super) lines: Vec<u64>,
    /// The class of each row.
    pub(super) classes: Vec<u32>,
    /// The values of each row, one after the other.
    pub(super) values: Vec<f32>,
    /// The part of each row, where a column says it.
    pub(super) parts: Option<Vec<Part>>,
    /// What becomes of images without a line.
    pub(super) unlisted: Unlisted,
    /// What the first column is called.
    pub(super) first: String,
}

impl LabelTable {
    /// The table's name beside the data.
    pub const KEY: &'static str = "labels.csv";
    /// The most bytes of a table: a million samples, or some millions of values.
    pub const MOST_BYTES: u64 = 64 << 20;

    /// Reads a table, called `name` in messages.
    ///
    /// # Errors
    /// [`LabelsError`] with the line, what is wrong there, and what to do.
    pub fn parse(name: &str, bytes: &[u8], task: Task) -> Result<Self, LabelsError> {
        if bytes.len() as u64 > Self::MOST_BYTES {
            let most = Self::MOST_BYTES >> 20;
            return Err(LabelsError::of_table(
                name,
                format!("it is larger than {most} MiB, which is the most; divide the data"),
            ));
        }
        Reading::start(name, bytes, task)?.finish()
    }

    /// The same, for data of which it lists a part if `unlisted` says so.
    #[must_use]
    pub fn with_unlisted(self, unlisted: Unlisted) -> Self {
        Self { unlisted, ..self }
    }

    /// What it says of each sample.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Classes, sorted; else the columns, in the order of the values.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What it says of an image: its part, by its column or by where the image lies, and of classes its class. None where it has no line.
    pub fn get(&self, key: &str) -> Option<(Option<Part>, &str)> {
        let row = self.row(key)?;
        Some((self.part(Some(row), key), self.class(row)))
    }

    /// Its columns in the order of `names`; nothing to do for classes.
    ///
    /// # Errors
    /// [`LabelsError`] where these are not its columns.
    pub fn ordered(mut self, names: &[String]) -> Result<Self, LabelsError> {
        if self.task == Task::Classes || self.names == names {
            return Ok(self);
        }
        let place = |name: &String| self.names.iter().position(|own| own == name);
        let places: Option<Vec<usize>> = names.iter().map(place).collect();
        let Some(places) = places.filter(|places| places.len() == self.names.len()) else {
            let why = format!(
                "its columns are {}, but the model's are {}; give it a table with the same",
                few(&self.names),
                few(names)
            );
            return Err(LabelsError::of_table(&self.name, why));
        };
        let width = places.len().max(1);
        let rows = self.values.chunks(width);
        let ordered = rows.flat_map(|row| places.iter().filter_map(|place| row.get(*place).copied()));
        self.values = ordered.collect();
        self.names = names.to_vec();
        Ok(self)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn row(&self, key: &str) -> Option<u32> {
        self.rows.get(key).copied()
    }

    /// The class of a row; of other tasks all rows have the same, that is none.
    pub(super) fn class(&self, row: u32) -> &str {
        let class = self.classes.get(row as usize);
        let name = class.and_then(|class| self.names.get(*class as usize));
        name.map_or("", String::as_str)
    }

    /// Whether it says the parts.
    pub(super) fn divides(&self) -> bool {
        self.parts.is_some()
    }

    /// The part of the sample `key`, whose line is this row if it has one: what the table says, else its folder or shard.
    pub(super) fn part(&self, row: Option<u32>, key: &str) -> Option<Part> {
        match &self.parts {
            Some(parts) => parts.get(row? as usize).copied(),
            None => Part::of_key(key),
        }
    }

    /// All values, row after row.
    pub(super) fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// The first row, by its line, of those that are not `seen`: its line and key.
    pub(super) fn first_without(&self, seen: &[bool]) -> Option<(u64, &str)> {
        let line = |row: u32| self.lines.get(row as usize).copied().unwrap_or_default();
        let unseen = self
            .rows
            .iter()
            .filter(|(_, row)| seen.get(**row as usize) != Some(&true));
        let lines = unseen.map(|(key, row)| (line(*row), key.as_str()));
        lines.min()
    }

    pub(super) fn at(&self, row: u32, why: String) -> LabelsError {
        let line = self.lines.get(row as usize).copied();
        LabelsError {
            table: self.name.clone(),
            line,
            why,
        }
    }

    /// Refuses a first line that is one of samples.
    pub(super) fn check_header(&self, mut is_key: impl FnMut(&str) -> bool) -> Result<(), LabelsError> {
        if !is_key(&self.first) {
            return Ok(());
        }
        Err(LabelsError {
            table: self.name.clone(),
            line: Some(1),
            why: format!(
                "the first line has to name the columns, but begins with the object '{}'; put a line such as file,label before it",
                self.first
            ),
        })
    }
}

/// Some of the names, for messages.
pub(super) fn few(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    format!("{}{more}", shown.join(", "))
}
