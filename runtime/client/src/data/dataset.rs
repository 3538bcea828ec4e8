use super::error::in_quotes;
use super::folders::{Class, Classes, Folders, SampleFiles, is_hidden};
use super::samples::{Row, Samples, Values};
use super::{DatasetError, LabelTable, LeftOut, Listing, Part, Task, shuffle};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
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

/// Classes that one part has and the other has not. Those of `train/` alone are trained and not validated; samples of those of `validation/` alone
/// are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneSided {
    /// The classes.
    pub classes: Vec<String>,
    /// The part that has them.
    pub present: Part,
}

impl fmt::Display for OneSided {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = in_quotes(&self.classes);
        match self.present {
            Part::Train => write!(
                to,
                "{classes} in train/ but not in validation/: trained, not validated"
            ),
            part => write!(to, "{classes} in {part}/ but not in train/: left out"),
        }
    }
}

/// Keys that are named of those that are left out.
const NAMED: usize = 5;

/// How a listing is divided into samples to train and to validate with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Division {
    /// The share of every class to validate with (at least one sample stays on either side), for data without a part for it.
    pub validation_share: Option<f64>,
    /// What the share is drawn by.
    pub seed: u64,
    /// Which files are samples.
    pub files: SampleFiles,
}

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
        let rows = parts.labelled();
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
            (parts.classes(), parts.labelled())
        } else {
            let valued = |part: Classes<'_>| {
                let objects = part.into_values().flat_map(|class| class.samples);
                labelled(&listing, objects, &table)
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

    /// The samples to measure a tuned model with, labelled by the model's own `classes`, by ascending key; and what is left out.
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
            Task::Labels | Task::Numbers => labelled(
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

/// Samples by what they are there for.
struct Parts<'a> {
    train: Classes<'a>,
    validation: Classes<'a>,
    test: Classes<'a>,
}

impl<'a> Parts<'a> {
    fn divide(
        root: &str,
        listing: &Listing,
        mut folders: Folders<'a>,
        division: Division,
    ) -> Result<Self, DatasetError> {
        if folders.parts.is_empty() && folders.classes.is_empty() {
            return Err(DatasetError::empty(root, listing));
        }
        let test = folders.parts.remove(&Part::Test).unwrap_or_default();
        let parts = [Part::Train, Part::Validation].map(|part| folders.parts.remove(&part));
        let root = || root.to_owned();
        let (part, undivided) = match (parts, division.validation_share) {
            ([Some(_), Some(_)], Some(_)) => return Err(DatasetError::DividedTwice { root: root() }),
            ([Some(train), Some(validation)], None) => {
                check_images(&root(), Some(Part::Train), &train)?;
                check_images(&root(), Some(Part::Validation), &validation)?;
                return Ok(Self {
                    train,
                    validation,
                    test,
                });
            }
            ([None, Some(_)], _) => return Err(DatasetError::NoTrain { root: root() }),
            ([Some(train), None], _) => (Some(Part::Train), train),
            ([None, None], _) => (None, folders.classes),
        };
        let Some(share) = division.validation_share else {
            return Err(DatasetError::NotDivided {
                root: root(),
                classes: undivided.len(),
                part,
            });
        };
        check_images(&root(), part, &undivided)?;
        let (train, validation) = divide(&root(), undivided, share, division.seed)?;
        Ok(Self {
            train,
            validation,
            test,
        })
    }

    /// Takes classes that are not trained from the samples to validate with, and tells which classes only one of the parts has.
    ///
    /// # Errors
    /// [`DatasetError::MissingClass`] where they have none in common, [`DatasetError::OneClass`].
    fn settle(&mut self, root: &str) -> Result<Vec<OneSided>, DatasetError> {
        let lacking = |of: &Classes<'_>, from: &Classes<'_>| -> Vec<String> {
            let names = of.keys().filter(|class| !from.contains_key(*class));
            names.map(|class| (*class).to_owned()).collect()
        };
        let sides = [
            (Part::Train, lacking(&self.train, &self.validation)),
            (Part::Validation, lacking(&self.validation, &self.train)),
        ];
        let one_sided = sides.map(|(present, classes)| OneSided { classes, present });
        self.validation.retain(|class, _| self.train.contains_key(class));
        if self.validation.is_empty() {
            let [of_train, of_validation] = one_sided.map(|side| side.classes);
            return Err(DatasetError::MissingClass {
                root: root.to_owned(),
                train: of_train,
                validation: of_validation,
            });
        }
        match self.train.keys().next() {
            Some(class) if self.train.len() == 1 => Err(DatasetError::OneClass {
                root: root.to_owned(),
                class: (*class).to_owned(),
            }),
            _ => Ok(one_sided
                .into_iter()
                .filter(|side| !side.classes.is_empty())
                .collect()),
        }
    }

    /// The names of the classes that are trained.
    fn classes(&self) -> Vec<String> {
        self.train.keys().map(|class| (*class).to_owned()).collect()
    }

    /// The samples of each part with their labels.
    fn labelled(self) -> [Vec<Row>; 3] {
        let labels: BTreeMap<&str, u32> = self.train.keys().copied().zip(0..).collect();
        [self.train, self.validation, self.test].map(|part| {
            let labelled = part
                .into_iter()
                .filter_map(|(class, objects)| Some((*labels.get(class)?, objects)));
            let rows = labelled.flat_map(|(label, class)| {
                class.samples.into_iter().map(move |object| Row { object, label })
            });
            rows.collect()
        })
    }
}

/// Refuses a class folder without samples.
fn check_images(root: &str, part: Option<Part>, classes: &Classes<'_>) -> Result<(), DatasetError> {
    match classes.iter().find(|(_, class)| class.samples.is_empty()) {
        None => Ok(()),
        Some((name, class)) => Err(DatasetError::NoImages {
            root: root.to_owned(),
            folder: format!(
                "{}{name}/",
                part.map_or_else(String::new, |part| format!("{part}/"))
            ),
            files: class.others,
            first: class.other.unwrap_or_default().to_owned(),
        }),
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
