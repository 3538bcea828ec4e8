use super::division::{Division, OneSided, Parts, check_images};
use super::folders::{Classes, Folders, SampleFiles, is_hidden};
use super::samples::{Row, Samples, Values};
use super::{DatasetError, LabelTable, LeftOut, Listing, Part, Task};
use std::collections::HashSet;
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
    /// Samples to measure the tuned model with, of the classes that are trained; none where there is no such part.
    pub test: Arc<Samples>,
    /// What is none of them.
    pub left_out: LeftOut,
    /// Classes of one of the parts to train and to validate with.
    pub one_sided: Vec<OneSided>,
}

/// Keys that are named of those that are left out.
const NAMED: usize = 5;

/// The samples that a model is evaluated with.
#[derive(Debug, Clone, Copy)]
pub enum Evaluated<'a> {
    /// The part that is there: `validation`, else `test`, else `train`; all of data without parts.
    Usual,
    /// This part.
    Part(Part),
    /// Those of all parts that have these keys.
    Keys(&'a HashSet<String>),
}

impl Dataset {
    /// Divides a listing: `train/<class>/*` and `validation/<class>/*`, or `train/<class>/*` or `<class>/*` with a share of every class;
    /// `test/<class>/*` stays apart. [`Part`] has the names of folders. Hidden files, files outside class folders and those that are no
    /// samples are left out.
    ///
    /// Samples inside shards have the class their label says, and lie in the part that a word of the shard's key names. Shards of one
    /// part only are divided by the share.
    ///
    /// # Errors
    /// [`DatasetError`], naming the folder that is missing.
    pub fn from_listing(root: &str, listing: Listing, division: Division) -> Result<Self, DatasetError> {
        let listing = Arc::new(listing);
        let folders = Folders::sort(&listing, division.files);
        let mut parts = Parts::divide(root, &listing, folders, division)?;
        let one_sided = parts.settle(root)?;
        let classes = parts.classes();
        let rows = parts.labeled();
        let left_out = left_out(&listing, &rows, |_| true);
        let [train, validation, test] = rows.map(|rows| Arc::new(Samples::new(Arc::clone(&listing), rows)));
        Ok(Self {
            task: Task::Classes,
            classes,
            train,
            validation,
            test,
            left_out,
            one_sided,
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
        let mut parts = Parts::divide(root, &listing, folders, division)?;
        let task = table.task();
        let mut one_sided = Vec::new();
        let (classes, rows) = if task == Task::Classes {
            one_sided = parts.settle(root)?;
            (parts.classes(), parts.labeled())
        } else {
            let valued = |part: Classes<'_>| {
                let objects = part.into_values().flat_map(|class| class.samples);
                labeled(&listing, objects, &table)
            };
            (
                table.names().to_vec(),
                [parts.train, parts.validation, parts.test].map(valued),
            )
        };
        let left_out = left_out(&listing, &rows, |_| true);
        let samples = rows.map(|rows| Samples::new(Arc::clone(&listing), rows));
        let [train, validation, test] = valued(table, samples).map(Arc::new);
        Ok(Self {
            task,
            classes,
            train,
            validation,
            test,
            left_out,
            one_sided,
        })
    }

    /// The class folders that [`Dataset::to_evaluate`] would find, sorted.
    pub fn class_folders(listing: &Listing, files: SampleFiles) -> Vec<String> {
        let folders = Folders::sort(listing, files);
        let part = folders.evaluated();
        folders.into_part(part).into_keys().map(str::to_owned).collect()
    }

    /// The samples to measure a tuned model with, labeled by the model's own `classes`, by ascending key; and what is left out.
    ///
    /// # Errors
    /// [`DatasetError::Empty`], [`DatasetError::NoPart`], [`DatasetError::NoImages`], and [`DatasetError::UnknownClass`] for a folder that
    /// is none of the model's classes.
    pub fn to_evaluate(
        root: &str,
        listing: Listing,
        classes: &[String],
        files: SampleFiles,
        evaluated: Evaluated<'_>,
    ) -> Result<(Samples, LeftOut), DatasetError> {
        let listing = Arc::new(listing);
        let folders = Folders::sort(&listing, files);
        let (part, samples) = chosen(root, &listing, folders, evaluated)?;
        check_any(root, &listing, &samples)?;
        check_images(root, part, &samples)?;
        let rows = rows_of_classes(root, &listing, samples, classes)?;
        // Those in other folders were not asked for.
        let left_out = left_out(&listing, &[&rows], |of| {
            !matches!(evaluated, Evaluated::Keys(_)) && of == part
        });
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
        evaluated: Evaluated<'_>,
    ) -> Result<(Samples, LeftOut), DatasetError> {
        let (listing, table) = (Arc::new(listing), table.ordered(names)?);
        let folders = Folders::of_table(&listing, &table, files)?;
        match evaluated {
            Evaluated::Usual => folders.check_evaluated(&table, folders.evaluated())?,
            Evaluated::Part(part) => folders.check_evaluated(&table, Some(part))?,
            Evaluated::Keys(_) => {}
        }
        let (part, samples) = chosen(root, &listing, folders, evaluated)?;
        check_any(root, &listing, &samples)?;
        let rows = match table.task() {
            Task::Classes => rows_of_classes(root, &listing, samples, names)?,
            Task::Labels | Task::Numbers => labeled(
                &listing,
                samples.into_values().flat_map(|class| class.samples),
                &table,
            ),
        };
        let left_out = left_out(&listing, &[&rows], |of| {
            !matches!(evaluated, Evaluated::Keys(_)) && of == part
        });
        let [samples] = valued(table, [Samples::new(listing, rows)]);
        Ok((samples, left_out))
    }
}

/// The samples to evaluate with, and their part.
fn chosen<'a>(
    root: &str,
    listing: &Listing,
    folders: Folders<'a>,
    evaluated: Evaluated<'_>,
) -> Result<(Option<Part>, Classes<'a>), DatasetError> {
    let part = match evaluated {
        Evaluated::Usual => folders.evaluated(),
        Evaluated::Part(part) if !folders.parts.contains_key(&part) => {
            return Err(DatasetError::NoPart {
                root: root.to_owned(),
                part,
            });
        }
        Evaluated::Part(part) => Some(part),
        Evaluated::Keys(keys) => {
            let mut all = folders.into_all();
            let is_chosen = |object: &u32| {
                listing
                    .get(*object)
                    .is_some_and(|object| keys.contains(object.key))
            };
            for class in all.values_mut() {
                class.samples.retain(is_chosen);
            }
            all.retain(|_, class| !class.samples.is_empty());
            return Ok((None, all));
        }
    };
    Ok((part, folders.into_part(part)))
}

/// Refuses a listing without samples.
fn check_any(root: &str, listing: &Listing, part: &Classes<'_>) -> Result<(), DatasetError> {
    if part.is_empty() {
        return Err(DatasetError::empty(root, listing));
    }
    Ok(())
}

/// Samples labeled by `classes`, by ascending key.
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
fn labeled(listing: &Listing, objects: impl Iterator<Item = u32>, table: &LabelTable) -> Vec<Row> {
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

impl Listing {
    /// The visible objects that are no samples by their names.
    pub fn left_out(&self, files: SampleFiles) -> LeftOut {
        let placed: HashSet<&str> = self
            .placed(files)
            .iter()
            .map(|placed| placed.object.key)
            .collect();
        let keys = self.iter().map(|(_, object)| object.key);
        let mut left_out = LeftOut::default();
        for key in keys.filter(|key| !placed.contains(key)) {
            note(&mut left_out, key);
        }
        left_out
    }
}

/// Notes an object that is left out, unless it is hidden or a labels table.
fn note(left_out: &mut LeftOut, key: &str) {
    if key == LabelTable::KEY || is_hidden(key) {
        return;
    }
    left_out.objects += 1;
    if left_out.first.len() < NAMED {
        left_out.first.push(key.to_owned());
    }
}

/// The visible objects that are in none of the `parts`, but for a labels table and what lies in other folders than those `asked` for.
fn left_out<R: AsRef<[Row]>>(
    listing: &Listing,
    parts: &[R],
    asked: impl Fn(Option<Part>) -> bool,
) -> LeftOut {
    let mut used = vec![false; listing.len()];
    for row in parts.iter().flat_map(|rows| rows.as_ref()) {
        if let Some(used) = used.get_mut(row.object as usize) {
            *used = true;
        }
    }
    let mut left_out = LeftOut::default();
    for ((_, object), used) in listing.iter().zip(used) {
        if !used && asked(Part::of_key(object.key)) {
            note(&mut left_out, object.key);
        }
    }
    left_out
}
