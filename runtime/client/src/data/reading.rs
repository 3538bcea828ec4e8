//! Reads a labels table line by line.

use super::table::few;
use super::{ExpectedLabels, LabelTable, LabelsError, Part, Task};
use csv::{ReaderBuilder, StringRecord};
use frostline_job::Unlisted;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Name of the column with parts.
const SPLIT: &str = "split";

impl LabelTable {
    /// Parses a table. `name` is used in messages.
    ///
    /// # Errors
    /// Returns [`LabelsError`] with the line, the reason and the next step.
    pub fn parse(name: &str, bytes: &[u8], task: Task) -> Result<Self, LabelsError> {
        if bytes.len() as u64 > Self::MOST_BYTES {
            let most = Self::MOST_BYTES >> 20;
            let why = format!("it is larger than the limit of {most} MiB; divide the data");
            return Err(LabelsError::new(name, None, why));
        }
        Reading::start(name, bytes, task)?.finish()
    }
}

/// Parser state for a table.
pub(super) struct Reading<'a> {
    reader: csv::Reader<&'a [u8]>,
    lines: LineNumbers<'a>,
    columns: Vec<String>,
    /// Index of the column with parts.
    split: Option<usize>,
    table: LabelTable,
    /// Class name of each row.
    of_rows: Vec<String>,
}

impl<'a> Reading<'a> {
    pub(super) fn start(name: &str, bytes: &'a [u8], task: Task) -> Result<Self, LabelsError> {
        let mut reader = ReaderBuilder::new().from_reader(bytes);
        let header = reader
            .headers()
            .map_err(|error| unreadable(name, bytes, &error))?;
        let columns: Vec<String> = header.iter().map(|column| column.trim().to_owned()).collect();
        check_columns(&columns, task).map_err(|why| LabelsError {
            expected: match task {
                Task::Classes => fitting(name, bytes),
                Task::Labels | Task::Numbers => None,
            },
            ..LabelsError::new(name, Some(1), why)
        })?;
        let split = columns.iter().skip(1).position(|column| column == SPLIT);
        let split = split.map(|place| place + 1);
        let (first, mut names) = columns
            .split_first()
            .map_or_else(Default::default, |(first, rest)| (first.clone(), rest.to_vec()));
        names.retain(|name| name != SPLIT);
        Ok(Self {
            reader,
            lines: LineNumbers::new(bytes),
            columns,
            split,
            table: LabelTable {
                name: name.to_owned(),
                task,
                names,
                rows: HashMap::new(),
                lines: Vec::new(),
                classes: Vec::new(),
                values: Vec::new(),
                parts: split.map(|_| Vec::new()),
                unlisted: Unlisted::default(),
                first,
            },
            of_rows: Vec::new(),
        })
    }

    pub(super) fn finish(mut self) -> Result<LabelTable, LabelsError> {
        let mut record = StringRecord::new();
        while self
            .reader
            .read_record(&mut record)
            .map_err(|error| unreadable(&self.table.name, self.lines.bytes, &error))?
        {
            let line = self.lines.at(record.position().map_or(0, csv::Position::byte));
            let added = self.add_row(&record, line);
            added.map_err(|why| LabelsError::new(&self.table.name, Some(line), why))?;
        }
        if self.table.len() < 2 {
            let why = format!(
                "it lists {} samples, but at least two are required",
                self.table.len()
            );
            return Err(LabelsError::new(&self.table.name, None, why));
        }
        if self.table.task == Task::Classes {
            self.number_classes();
        }
        Ok(self.table)
    }

    fn add_row(&mut self, record: &StringRecord, line: u64) -> Result<(), String> {
        let key = record.get(0).unwrap_or_default();
        let key = key.strip_prefix("./").unwrap_or(key);
        if key.is_empty() {
            return Err(format!(
                "the column '{}' is empty; enter the key of an object",
                self.table.first
            ));
        }
        if let Some(row) = self.table.rows.get(key) {
            let before = self.table.lines.get(*row as usize).copied().unwrap_or_default();
            return Err(format!(
                "duplicate key '{key}', first used in line {before}; remove one line, or write one column per label"
            ));
        }
        for (place, (column, field)) in self.columns.iter().zip(record).enumerate().skip(1) {
            let field = field.trim();
            if self.split == Some(place) {
                let part = Part::from_word(field).ok_or_else(|| {
                    let why = format!("invalid part '{field}' (expected train, validation or test)");
                    refused(&why, key, column)
                })?;
                self.table.parts.get_or_insert_default().push(part);
                continue;
            }
            match self.table.task {
                Task::Classes if field.is_empty() => {
                    return Err(refused("missing class", key, column)
                        + "; enter one, or remove the line and the object");
                }
                Task::Classes => self.of_rows.push(field.to_owned()),
                Task::Labels => self
                    .table
                    .values
                    .push(flag(field).map_err(|why| refused(&why, key, column))?),
                Task::Numbers => self
                    .table
                    .values
                    .push(number(field).map_err(|why| refused(&why, key, column))?),
            }
        }
        self.table
            .rows
            .insert(key.to_owned(), self.table.lines.len() as u32);
        self.table.lines.push(line);
        Ok(())
    }

    /// Sorts the class names and replaces the names in rows by indices.
    fn number_classes(&mut self) {
        let names: BTreeSet<&str> = self.of_rows.iter().map(String::as_str).collect();
        let numbers: HashMap<&str, u32> = names.iter().copied().zip(0..).collect();
        let classes = self
            .of_rows
            .iter()
            .filter_map(|name| numbers.get(name.as_str()).copied());
        self.table.classes = classes.collect();
        self.table.names = names.into_iter().map(str::to_owned).collect();
    }
}

/// Returns the message for a field that is not valid in its column.
fn refused(why: &str, key: &str, column: &str) -> String {
    format!("{why} for '{key}' in the column '{column}'")
}

fn check_columns(columns: &[String], task: Task) -> Result<(), String> {
    let names = columns.iter().skip(1).filter(|column| *column != SPLIT).count();
    if names == 0 {
        return Err("it needs a column with keys and a column with labels, separated by commas".to_owned());
    }
    if columns.iter().any(String::is_empty) {
        return Err(
            "a column has no name; add a name or write the table without an index (pandas: index=False)"
                .to_owned(),
        );
    }
    let mut known = HashSet::new();
    if let Some(twice) = columns.iter().find(|column| !known.insert(column.as_str())) {
        return Err(format!("duplicate column '{twice}'; use a different name"));
    }
    if task == Task::Classes && names > 1 {
        return Err(format!(
            "unexpected columns in {}: a table of classes has a column of keys, a column of classes and optionally a column named split; several columns are labels or numbers",
            few(columns)
        ));
    }
    Ok(())
}

fn flag(field: &str) -> Result<f32, String> {
    match (field, field.parse()) {
        ("true" | "True" | "TRUE", _) => Ok(1.0),
        ("false" | "False" | "FALSE", _) => Ok(0.0),
        (_, Ok(value)) if value == 0.0 || value == 1.0 => Ok(value),
        _ => Err(format!("invalid value '{field}' (expected 0 or 1)")),
    }
}

fn number(field: &str) -> Result<f32, String> {
    let value = field.parse().ok().filter(|value: &f32| value.is_finite());
    value.ok_or_else(|| format!("invalid number '{field}' (expected a finite number)"))
}

/// Converts byte offsets into line numbers, in ascending order. After CRLF, csv's internal line numbers are
/// off by 1.
struct LineNumbers<'a> {
    bytes: &'a [u8],
    counted: usize,
    line: u64,
}

impl<'a> LineNumbers<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            counted: 0,
            line: 1,
        }
    }

    /// Returns the line (from 1) of the first text at or after `byte`. `byte` must not be smaller than in the
    /// previous call.
    fn at(&mut self, byte: u64) -> u64 {
        let begins = usize::try_from(byte).unwrap_or(usize::MAX);
        let rest = self.bytes.get(self.counted..).unwrap_or_default();
        let between = begins.saturating_sub(self.counted).min(rest.len());
        let (before, after) = rest.split_at(between);
        let ends = after
            .iter()
            .take_while(|byte| matches!(byte, b'\r' | b'\n'))
            .count();
        let skipped = before.iter().chain(after.iter().take(ends));
        self.line += skipped.filter(|byte| **byte == b'\n').count() as u64;
        self.counted += between + ends;
        self.line
    }
}

fn unreadable(name: &str, bytes: &[u8], error: &csv::Error) -> LabelsError {
    let why = match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "invalid UTF-8; save the table as UTF-8".to_owned(),
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!(
                "it has {len} fields, but the first line names {expected_len}; quote fields that contain commas"
            )
        }
        _ => error.to_string(),
    };
    let line = error.position();
    let line = line.map(|position| LineNumbers::new(bytes).at(position.byte()));
    LabelsError::new(name, line, why)
}

/// Returns the setting with which a table that does not contain classes is valid.
fn fitting(name: &str, bytes: &[u8]) -> Option<ExpectedLabels> {
    if LabelTable::parse(name, bytes, Task::Labels).is_ok() {
        Some(ExpectedLabels::Labels)
    } else if LabelTable::parse(name, bytes, Task::Numbers).is_ok() {
        Some(ExpectedLabels::Numbers)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, task: Task) -> Result<LabelTable, String> {
        LabelTable::parse("labels.csv", text.as_bytes(), task).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_as_spreadsheets_write_it_is_read() {
        let text =
            "\u{feff}file, label\r\n\"a, b.jpg\",dog\r\n./c.jpg, cat \r\n\"d\"\"e.jpg\",\"big, cat\"\r\n";
        let table = parse(text, Task::Classes).unwrap();
        assert_eq!(table.names(), ["big, cat", "cat", "dog"]);
        let class = |key| table.row(key).map(|row| table.class(row).to_owned());
        assert_eq!(
            ["a, b.jpg", "c.jpg", "d\"e.jpg", "f"].map(class),
            [Some("dog"), Some("cat"), Some("big, cat"), None].map(|class| class.map(str::to_owned))
        );
        assert_eq!(table.first, "file");
        assert_eq!(table.first_without(&[true, false, false]), Some((3, "c.jpg")));
    }

    #[test]
    fn columns_are_labels_or_numbers() {
        let table = parse("file,cat,dog\na,1,0.0\nb,True,false\n", Task::Labels).unwrap();
        assert_eq!(
            (table.names(), table.values.as_slice()),
            (
                ["cat", "dog"].map(str::to_owned).as_slice(),
                [1.0, 0.0, 1.0, 0.0].as_slice()
            )
        );
        let table = parse("file,x,y\na,1.5,-2e3\nb,0,7\n", Task::Numbers).unwrap();
        assert_eq!(table.values, [1.5, -2000.0, 0.0, 7.0]);
        let turned = table.clone().ordered(&["y", "x"].map(str::to_owned)).unwrap();
        assert_eq!(turned.values, [-2000.0, 1.5, 7.0, 0.0]);
        let error = table.ordered(&["y".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("x, y") && error.contains("the model's are y"),
            "{error}"
        );
    }

    #[test]
    fn a_table_of_another_task_names_that_task() {
        use ExpectedLabels::{Labels, Numbers};
        for (text, expected) in [
            ("file,cat,dog\na,1,0\nb,0,1\n", Some(Labels)),
            ("file,x,y\na,1,0.5\nb,7,1\n", Some(Numbers)),
            ("file,x,y\na,1,old\nb,7,1\n", None),
            ("file,x,y\na,1,0\na,0,1\n", None),
        ] {
            let error = LabelTable::parse("labels.csv", text.as_bytes(), Task::Classes).unwrap_err();
            assert_eq!(error.expected, expected, "{text}");
        }
    }

    #[test]
    fn a_fault_is_told_by_its_line_its_key_and_what_to_do() {
        use Task::{Classes, Labels, Numbers};
        for (text, task, words) in [
            (
                "file,label\na,dog\na,cat\n",
                Classes,
                ["line 3", "duplicate key 'a', first used in line 2"],
            ),
            (
                "file,label\na,dog\nb, \n",
                Classes,
                ["line 3", "missing class for 'b'"],
            ),
            (
                "file,label\n,dog\nb,cat\n",
                Classes,
                ["line 2", "'file' is empty"],
            ),
            ("file,label\na,dog,cat\n", Classes, ["line 2", "3 fields"]),
            ("file,cat,dog\na,1,0\n", Classes, ["line 1", "labels or numbers"]),
            ("file,cat,dog\na,1,2\nb,0,0\n", Labels, ["line 2", "'dog'"]),
            ("file,age\na,1\nb,NaN\n", Numbers, ["line 3", "'NaN'"]),
            ("file,age\na,1\nb,old\n", Numbers, ["line 3", "'old'"]),
            ("file,age\na,1e39\nb,1\n", Numbers, ["line 2", "'1e39'"]),
            (",file,age\n0,a,1\n", Numbers, ["line 1", "index=False"]),
            (
                "file,age,age\na,1,1\n",
                Numbers,
                ["line 1", "duplicate column 'age'"],
            ),
            ("file,split\na,train\n", Classes, ["line 1", "commas"]),
            (
                "file,split,label\na,train,cat\nb,tset,cat\n",
                Classes,
                ["line 3", "invalid part 'tset'"],
            ),
            (
                "file,label,split\na,cat,\n",
                Classes,
                ["line 2", "invalid part ''"],
            ),
            ("file\na\n", Classes, ["line 1", "commas"]),
            ("", Classes, ["line 1", "commas"]),
            ("file,label\na,cat\n", Classes, ["labels.csv", "at least two"]),
        ] {
            let error = parse(text, task).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{text:?}: {error}");
        }
        let error = LabelTable::parse("x", b"file,label\na,\xff\n", Classes).unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
    }
}
