use super::division::{ClassParts, ClassWarning, Division, check_images, class_names};
use super::folders::{Classes, Folders, SampleFiles, is_hidden};
use super::samples::{Row, SampleValues, Samples};
use super::{DatasetError, LabelTable, Listing, Part, SkippedObjects, Task, is_same_name};
use frostline_tensor::is_cloud_placeholder;
use std::collections::HashSet;
use std::sync::Arc;

/// Training, validation and test samples for a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Kind of labels.
    pub task: Task,
    /// Class names, indexed by labels: in ascending order, or all numbers from 0 if the labels are output
    /// numbers. For other tasks, the names of the labels or numbers in the order of a sample's values.
    pub classes: Vec<String>,
    /// Training samples, sorted by class and key.
    pub train: Arc<Samples>,
    /// Validation samples, sorted by class and key.
    pub validation: Arc<Samples>,
    /// Samples to test the tuned model with, limited to trained classes. Empty if there is no test part.
    pub test: Arc<Samples>,
    /// Objects that are not in any of the parts.
    pub left_out: SkippedObjects,
    /// Classes that may be a mistake in the data.
    pub warnings: Vec<ClassWarning>,
}

/// Maximum number of keys in [`SkippedObjects`].
const NAMED: usize = 5;

/// Classes assumed for the outputs of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumedNames {
    /// Class names by output.
    pub names: Vec<String>,
    /// True if the class names are the numbers of the outputs. Otherwise, the order of the outputs is an
    /// assumption.
    pub numbered: bool,
}

/// Selection of the samples to evaluate.
#[derive(Debug, Clone, Copy)]
pub enum Evaluated<'a> {
    /// The default selection: validation samples if available, otherwise test samples, otherwise training
    /// samples. If the data have no parts, all samples are selected.
    DefaultPart,
    /// The specified part.
    Part(Part),
    /// Samples with these keys, from all parts.
    Keys(&'a HashSet<String>),
}

impl Dataset {
    /// Divides a listing into parts.
    ///
    /// Without a labels table, folders determine classes and parts: `train/<class>/*` and
    /// `validation/<class>/*`, or `train/<class>/*` or `<class>/*` with a validation share. Samples in
    /// `test/<class>/*` are kept separate. [`Part`] lists alternative folder names. Omits hidden files, files
    /// outside class folders, files that are not samples (see [`SampleFiles`]), and validation and test samples
    /// of classes without training samples.
    ///
    /// Samples in shards use the label as the class, and are omitted without a label. A word in the shard's
    /// key names the part. If shards name a part and the data have no other part, the validation share is
    /// used. If all labels in shards are numbers, they are output numbers, as in WebDataset.
    ///
    /// A table may determine the parts. Otherwise the parts are `train/` and `validation/`, or the validation
    /// share is used. Folders have no other meaning. Only classes of samples in a part count.
    ///
    /// # Errors
    /// Returns [`DatasetError`], for example with the name of a missing folder. The error is
    /// [`DatasetError::Labels`], with a line number, if the table is invalid or does not match.
    pub fn new(
        root: &str,
        listing: Listing,
        table: Option<LabelTable>,
        division: Division,
    ) -> Result<Self, DatasetError> {
        let listing = Arc::new(listing);
        let folders = Folders::new(&listing, table.as_ref(), division.files)?;
        if let Some(table) = &table {
            folders.check_trained(table)?;
        }
        let values = table.as_ref().filter(|table| table.task() != Task::Classes);
        if values.is_none() {
            folders.check_classes(root, &listing)?;
        }
        let mut parts = ClassParts::divide(root, &listing, folders, division)?;
        let mut warnings = Vec::new();
        let (classes, rows) = match values {
            None => {
                warnings = parts.settle(root)?;
                (parts.classes(), parts.labeled())
            }
            Some(table) => {
                let parts = [parts.train, parts.validation, parts.test];
                (
                    table.names().to_vec(),
                    parts.map(|part| labeled(&listing, part, table)),
                )
            }
        };
        let left_out = left_out(&listing, &rows, |_| true);
        let task = values.map_or(Task::Classes, LabelTable::task);
        let samples = rows.map(|rows| Samples::new(Arc::clone(&listing), rows));
        let [train, validation, test] = valued(table, samples).map(Arc::new);
        Ok(Self {
            task,
            classes,
            train,
            validation,
            test,
            left_out,
            warnings,
        })
    }

    /// Returns the classes that the outputs of a network without class names are assumed to be: those of
    /// `table`, or of the samples that [`Dataset::to_evaluate`] uses by default.
    pub fn assumed_names(listing: &Listing, table: Option<&LabelTable>, files: SampleFiles) -> AssumedNames {
        if let Some(table) = table {
            let numbered = table.is_numbered();
            return AssumedNames {
                names: class_names(numbered, table.names().iter().map(String::as_str)),
                numbered,
            };
        }
        let folders = Folders::sort(listing, files);
        let part = folders.default_part();
        let numbered = folders.numbered;
        let classes = folders.into_part(part);
        AssumedNames {
            names: class_names(numbered, classes.into_keys()),
            numbered,
        }
    }

    /// Returns the samples to evaluate a tuned model with, sorted by key and labeled by index in the model's
    /// classes, and the omitted objects. `names` are the model's classes, labels or targets in order. Labels come
    /// from the table, if there is one.
    ///
    /// # Errors
    /// Returns [`DatasetError::Empty`], [`DatasetError::NoPart`], [`DatasetError::NoImages`],
    /// [`DatasetError::UnknownClass`] if a folder is not a class of the model, or [`DatasetError::Labels`] if
    /// the table does not match.
    pub fn to_evaluate(
        root: &str,
        listing: Listing,
        table: Option<LabelTable>,
        names: &[String],
        files: SampleFiles,
        evaluated: Evaluated<'_>,
    ) -> Result<(Samples, SkippedObjects), DatasetError> {
        let listing = Arc::new(listing);
        let table = table.map(|table| table.ordered(names)).transpose()?;
        let folders = Folders::new(&listing, table.as_ref(), files)?;
        if let Some(table) = &table {
            match evaluated {
                Evaluated::DefaultPart => folders.check_evaluated(table, folders.default_part())?,
                Evaluated::Part(part) => folders.check_evaluated(table, Some(part))?,
                Evaluated::Keys(_) => {}
            }
        }
        let part_folders = folders.part_folders.clone();
        let (part, samples) = chosen(root, &listing, folders, evaluated)?;
        if samples.is_empty() {
            return Err(DatasetError::empty(root, &listing));
        }
        check_images(root, part, &samples)?;
        let rows = match &table {
            Some(table) if table.task() != Task::Classes => labeled(&listing, samples, table),
            _ => rows_of_classes(root, &listing, samples, names)?,
        };
        // Do not report objects in other folders, because the evaluation ignores these folders.
        let left_out = left_out(&listing, &[&rows], |key| {
            !matches!(evaluated, Evaluated::Keys(_)) && part_folders.part(key) == part
        });
        let [samples] = valued(table, [Samples::new(listing, rows)]);
        Ok((samples, left_out))
    }
}

/// Returns the samples to evaluate and the part.
fn chosen<'a>(
    root: &str,
    listing: &Listing,
    folders: Folders<'a>,
    evaluated: Evaluated<'_>,
) -> Result<(Option<Part>, Classes<'a>), DatasetError> {
    let part = match evaluated {
        Evaluated::DefaultPart => {
            folders.check_parts(root)?;
            folders.default_part()
        }
        Evaluated::Part(part) if !folders.parts.contains_key(&part) => {
            return Err(DatasetError::NoPart {
                root: root.to_owned(),
                part,
            });
        }
        Evaluated::Part(part) => Some(part),
        Evaluated::Keys(keys) => {
            let mut all = folders.into_all();
            for class in all.values_mut() {
                class.samples.retain(|object| {
                    listing
                        .get(*object)
                        .is_some_and(|object| keys.contains(object.key))
                });
            }
            all.retain(|_, class| !class.samples.is_empty());
            return Ok((None, all));
        }
    };
    Ok((part, folders.into_part(part)))
}

/// Labels samples by index in `classes` and sorts them by key.
fn rows_of_classes(
    root: &str,
    listing: &Listing,
    part: Classes<'_>,
    classes: &[String],
) -> Result<Vec<Row>, DatasetError> {
    let mut rows = Vec::new();
    for (class, objects) in part {
        let label = classes
            .iter()
            .position(|known| known == class)
            .or_else(|| classes.iter().position(|known| is_same_name(known, class)))
            .ok_or_else(|| DatasetError::UnknownClass {
                root: root.to_owned(),
                class: class.to_owned(),
            })? as u32;
        rows.extend(objects.samples.into_iter().map(|object| Row { object, label }));
    }
    rows.sort_by_key(|row| listing.get(row.object).map(|object| object.key));
    Ok(rows)
}

/// Pairs each sample with the index of the row in the table.
fn labeled(listing: &Listing, samples: Classes<'_>, table: &LabelTable) -> Vec<Row> {
    samples
        .into_values()
        .flat_map(|class| class.samples)
        .filter_map(|object| {
            let label = table.row(listing.get(object)?.key)?;
            Some(Row { object, label })
        })
        .collect()
}

/// Attaches the values of the table, if any, to the samples.
fn valued<const PARTS: usize>(table: Option<LabelTable>, parts: [Samples; PARTS]) -> [Samples; PARTS] {
    let Some(table) = table.filter(|table| table.task() != Task::Classes) else {
        return parts;
    };
    let values = Arc::new(SampleValues {
        width: table.names.len(),
        values: table.values,
    });
    parts.map(|samples| samples.with_values(&values))
}

impl Listing {
    /// Returns the visible objects that are not samples according to their names.
    pub fn left_out(&self, files: SampleFiles) -> SkippedObjects {
        let placed: HashSet<&str> = self
            .placed(files)
            .iter()
            .map(|placed| placed.object.key)
            .collect();
        let keys = self.iter().map(|(_, object)| object.key);
        let mut left_out = SkippedObjects::default();
        for key in keys.filter(|key| !placed.contains(key)) {
            note(&mut left_out, key);
        }
        left_out
    }
}

/// Adds an object to `left_out`, unless it is a labels table or hidden. Placeholders of iCloud are hidden, but
/// stand for files that may be samples.
fn note(left_out: &mut SkippedObjects, key: &str) {
    if key == LabelTable::KEY || is_hidden(key) && !is_cloud_placeholder(key) {
        return;
    }
    left_out.objects += 1;
    if left_out.first.len() < NAMED {
        left_out.first.push(key.to_owned());
    }
}

/// Returns the visible objects that are not in any of the `parts`. Labels tables and objects of parts for
/// which `asked` is false are ignored.
fn left_out<R: AsRef<[Row]>>(listing: &Listing, parts: &[R], asked: impl Fn(&str) -> bool) -> SkippedObjects {
    let mut used = vec![false; listing.len()];
    for row in parts.iter().flat_map(|rows| rows.as_ref()) {
        if let Some(used) = used.get_mut(row.object as usize) {
            *used = true;
        }
    }
    let mut left_out = SkippedObjects::default();
    for ((_, object), used) in listing.iter().zip(used) {
        if !used && asked(object.key) {
            note(&mut left_out, object.key);
        }
    }
    left_out
}
