use super::folders::{Class, Classes, Folders, SampleFiles, is_hidden};
use super::samples::{Row, Samples, Values};
use super::shards::{TRAIN, VALIDATION};
use super::{DatasetError, LabelTable, LeftOut, Listing, Task, shuffle};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Samples of a task, divided into those to train and those to validate with.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// What is said of each sample.
    pub task: Task,
    /// Class names, sorted, a label being an index into them; else the names of labels or numbers, in the order of a sample's values.
    pub classes: Vec<String>,
    /// Samples to train with, by class and ascending key.
    pub train: Arc<Samples>,
    /// Samples to validate with, by class and ascending key.
    pub validation: Arc<Samples>,
    /// What is none of them.
    pub left_out: LeftOut,
}

/// Keys that are named of those that are left out.
const NAMED: usize = 5;

/// How a listing is divided into samples to train and to validate with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Division {
    /// The share of every class to validate with (at least one sample stays on either side), for data without parts of their own.
    pub validation_share: Option<f64>,
    /// What the share is drawn by.
    pub seed: u64,
    /// Which files are samples.
    pub files: SampleFiles,
}

impl Dataset {
    /// Divides a listing: `train/<class>/*` and `validation/<class>/*`, or `<class>/*` with a share of every class. Hidden files, files
    /// outside class folders and those that are no samples are left out.
    ///
    /// Samples inside shards have the class their label says, and lie in the part that a word of the shard's key names: `train`,
    /// `val` or `validation`, or `test` where there is no other to validate with. Shards of one part only are divided by the share.
    ///
    /// # Errors
    /// [`DatasetError`], naming the folder that is missing.
    pub fn from_listing(root: &str, listing: Listing, division: Division) -> Result<Self, DatasetError> {
        let listing = Arc::new(listing);
        let folders = Folders::sort(&listing, division.files);
        let (train, validation) = parts(root, listing.len(), folders, division)?;
        check_classes(root, &train, &validation)?;
        let classes = train.keys().map(|class| (*class).to_owned()).collect();
        let (train, validation) = (label(train), label(validation));
        Ok(Self {
            task: Task::Classes,
            classes,
            left_out: left_out_below("", &listing, [&train, &validation]),
            train: Arc::new(Samples::new(Arc::clone(&listing), train)),
            validation: Arc::new(Samples::new(Arc::clone(&listing), validation)),
        })
    }

    /// The same where a table says the labels: the parts are `train/` and `validation/` or by the share, and folders say nothing else.
    /// A class is one of a sample in a part: those of other lines are none.
    ///
    /// # Errors
    /// [`DatasetError`]; [`DatasetError::Labels`] with the table's line.
    pub fn from_table(
        root: &str,
        listing: Listing,
        table: LabelTable,
        division: Division,
    ) -> Result<Self, DatasetError> {
        let listing = Arc::new(listing);
        let folders = Folders::of_table(&listing, &table, division.files)?;
        folders.check_trained(&table)?;
        let (train, validation) = parts(root, listing.len(), folders, division)?;
        let task = table.task();
        let (classes, rows) = if task == Task::Classes {
            check_classes(root, &train, &validation)?;
            let classes = train.keys().map(|class| (*class).to_owned()).collect();
            (classes, [train, validation].map(label))
        } else {
            let valued = |part: Classes<'_>| {
                let objects = part.into_values().flat_map(|class| class.samples);
                labelled(&listing, objects, &table)
            };
            (table.names().to_vec(), [train, validation].map(valued))
        };
        let [train, validation] = &rows;
        let left_out = left_out_below("", &listing, [train, validation]);
        let samples = rows.map(|rows| Samples::new(Arc::clone(&listing), rows));
        let [train, validation] = valued(table, samples).map(Arc::new);
        Ok(Self {
            task,
            classes,
            train,
            validation,
            left_out,
        })
    }

    /// The class folders that [`Dataset::to_evaluate`] would find, sorted.
    pub fn class_folders(listing: &Listing, files: SampleFiles) -> Vec<String> {
        let (_, part) = Folders::sort(listing, files).into_evaluation();
        part.into_keys().map(str::to_owned).collect()
    }

    /// The samples to measure a tuned model with: those of `validation/`, else all of `<class>/*`, labelled by the model's own
    /// `classes`, by ascending key; and what is left out.
    ///
    /// # Errors
    /// [`DatasetError::Empty`], [`DatasetError::NoImages`], and [`DatasetError::UnknownClass`] for a folder that is none of the
    /// model's classes.
    pub fn to_evaluate(
        root: &str,
        listing: Listing,
        classes: &[String],
        files: SampleFiles,
    ) -> Result<(Samples, LeftOut), DatasetError> {
        let listing = Arc::new(listing);
        let (folder, part) = Folders::sort(&listing, files).into_evaluation();
        check_any(root, &listing, &part)?;
        check_images(root, folder, &part)?;
        let rows = rows_of_classes(root, &listing, part, classes)?;
        // Those in other folders were not asked for.
        let left_out = left_out_below(folder, &listing, [&rows]);
        Ok((Samples::new(listing, rows), left_out))
    }

    /// The same where a table says the labels, in the order of `names`, which are the model's classes, labels or targets.
    ///
    /// # Errors
    /// As [`Dataset::to_evaluate`], and [`DatasetError::Labels`].
    pub fn to_evaluate_by(
        root: &str,
        listing: Listing,
        table: LabelTable,
        names: &[String],
        files: SampleFiles,
    ) -> Result<(Samples, LeftOut), DatasetError> {
        let (listing, table) = (Arc::new(listing), table.ordered(names)?);
        let folders = Folders::of_table(&listing, &table, files)?;
        folders.check_evaluated(&table)?;
        let (folder, part) = folders.into_evaluation();
        check_any(root, &listing, &part)?;
        let rows = match table.task() {
            Task::Classes => rows_of_classes(root, &listing, part, names)?,
            Task::Labels | Task::Numbers => labelled(
                &listing,
                part.into_values().flat_map(|class| class.samples),
                &table,
            ),
        };
        let left_out = left_out_below(folder, &listing, [&rows]);
        let [samples] = valued(table, [Samples::new(listing, rows)]);
        Ok((samples, left_out))
    }
}

/// Refuses a listing without samples.
fn check_any(root: &str, listing: &Listing, part: &Classes<'_>) -> Result<(), DatasetError> {
    if part.is_empty() {
        return Err(DatasetError::Empty {
            root: root.to_owned(),
            objects: listing.len(),
        });
    }
    Ok(())
}

/// Samples labelled by `classes`, by ascending key.
fn rows_of_classes(
    root: &str,
    listing: &Listing,
    part: Classes<'_>,
    classes: &[String],
) -> Result<Vec<Row>, DatasetError> {
    let mut rows = Vec::new();
    for (class, objects) in part {
        let label =
            classes
                .iter()
                .position(|known| known == class)
                .ok_or_else(|| DatasetError::UnknownClass {
                    root: root.to_owned(),
                    class: class.to_owned(),
                })? as u32;
        rows.extend(objects.samples.into_iter().map(|object| Row { object, label }));
    }
    rows.sort_by_key(|row| listing.get(row.object).map(|object| object.key));
    Ok(rows)
}

/// Samples with the number of their row in the table.
fn labelled(listing: &Listing, objects: impl Iterator<Item = u32>, table: &LabelTable) -> Vec<Row> {
    let row = |object: u32| {
        let label = table.row(listing.get(object)?.key)?;
        Some(Row { object, label })
    };
    objects.filter_map(row).collect()
}

/// Samples with the table's values, where it has any.
fn valued<const PARTS: usize>(table: LabelTable, parts: [Samples; PARTS]) -> [Samples; PARTS] {
    if table.task() == Task::Classes {
        return parts;
    }
    let values = Arc::new(Values {
        width: table.names().len(),
        all: table.into_values(),
    });
    parts.map(|samples| samples.with_values(&values))
}

/// The visible objects in `folder`, but for a labels table, that are in none of `parts`.
fn left_out_below<const PARTS: usize>(folder: &str, listing: &Listing, parts: [&Vec<Row>; PARTS]) -> LeftOut {
    let mut used = vec![false; listing.len()];
    for row in parts.into_iter().flatten() {
        if let Some(used) = used.get_mut(row.object as usize) {
            *used = true;
        }
    }
    let mut left_out = LeftOut::default();
    for ((_, object), used) in listing.iter().zip(used) {
        let table = object.key == LabelTable::KEY;
        if used || table || is_hidden(object.key) || !object.key.starts_with(folder) {
            continue;
        }
        left_out.objects += 1;
        if left_out.first.len() < NAMED {
            left_out.first.push(object.key.to_owned());
        }
    }
    left_out
}

/// What to train and what to validate with.
fn parts<'a>(
    root: &str,
    objects: usize,
    mut folders: Folders<'a>,
    division: Division,
) -> Result<(Classes<'a>, Classes<'a>), DatasetError> {
    if folders.parts.is_empty() && folders.classes.is_empty() {
        return Err(DatasetError::Empty {
            root: root.to_owned(),
            objects,
        });
    }
    match (folders.parts.remove(TRAIN), folders.parts.remove(VALIDATION)) {
        (Some(_), Some(_)) if division.validation_share.is_some() => Err(DatasetError::DividedTwice {
            root: root.to_owned(),
        }),
        (Some(train), Some(validation)) => {
            check_images(root, &format!("{TRAIN}/"), &train)?;
            check_images(root, &format!("{VALIDATION}/"), &validation)?;
            Ok((train, validation))
        }
        (Some(_), None) => Err(missing_part(root, TRAIN, VALIDATION)),
        (None, Some(_)) => Err(missing_part(root, VALIDATION, TRAIN)),
        (None, None) => {
            let share = division
                .validation_share
                .ok_or_else(|| DatasetError::NotDivided {
                    root: root.to_owned(),
                    classes: folders.classes.len(),
                })?;
            check_images(root, "", &folders.classes)?;
            divide(root, folders.classes, share, division.seed)
        }
    }
}

fn missing_part(root: &str, present: &'static str, missing: &'static str) -> DatasetError {
    DatasetError::MissingPart {
        root: root.to_owned(),
        present,
        missing,
    }
}

/// Refuses a class folder without samples.
fn check_images(root: &str, folder: &str, classes: &Classes<'_>) -> Result<(), DatasetError> {
    match classes.iter().find(|(_, class)| class.samples.is_empty()) {
        None => Ok(()),
        Some((name, class)) => Err(DatasetError::NoImages {
            root: root.to_owned(),
            folder: format!("{folder}{name}/"),
            files: class.others,
            first: class.other.unwrap_or_default().to_owned(),
        }),
    }
}

fn check_classes(root: &str, train: &Classes<'_>, validation: &Classes<'_>) -> Result<(), DatasetError> {
    let missing = |class: &str, present, missing| {
        Err(DatasetError::MissingClass {
            root: root.to_owned(),
            class: class.to_owned(),
            present,
            missing,
        })
    };
    if let Some(class) = train.keys().find(|class| !validation.contains_key(*class)) {
        return missing(class, TRAIN, VALIDATION);
    }
    if let Some(class) = validation.keys().find(|class| !train.contains_key(*class)) {
        return missing(class, VALIDATION, TRAIN);
    }
    match train.keys().next() {
        Some(class) if train.len() == 1 => Err(DatasetError::OneClass {
            root: root.to_owned(),
            class: (*class).to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Draws `share` of every class for validation.
fn divide<'a>(
    root: &str,
    classes: Classes<'a>,
    share: f64,
    seed: u64,
) -> Result<(Classes<'a>, Classes<'a>), DatasetError> {
    if !(share > 0.0 && share < 1.0) {
        return Err(DatasetError::Share {
            share: share.to_string(),
        });
    }
    let (mut train, mut validation) = (Classes::new(), Classes::new());
    for (number, (name, class)) in classes.into_iter().enumerate() {
        let objects = class.samples;
        if objects.len() < 2 {
            return Err(DatasetError::TooFew {
                root: root.to_owned(),
                class: name.to_owned(),
            });
        }
        let wanted = (objects.len() as f64 * share).round() as usize;
        let wanted = wanted.clamp(1, objects.len() - 1);
        let order = shuffle::order(objects.len(), seed, shuffle::Purpose::Division(number as u64));
        let chosen: BTreeSet<u32> = order.into_iter().take(wanted).collect();
        let side = |validates: bool| {
            let mine = (0..)
                .zip(&objects)
                .filter(|(index, _)| chosen.contains(index) == validates);
            Class {
                samples: mine.map(|(_, object)| *object).collect(),
                ..Class::default()
            }
        };
        train.insert(name, side(false));
        validation.insert(name, side(true));
    }
    Ok((train, validation))
}

fn label(classes: Classes<'_>) -> Vec<Row> {
    let labelled = (0..).zip(classes.into_values());
    let rows = labelled
        .flat_map(|(label, class)| class.samples.into_iter().map(move |object| Row { object, label }));
    rows.collect()
}
