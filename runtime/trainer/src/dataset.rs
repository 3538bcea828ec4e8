use crate::shards::ShardSample;
use crate::shuffle;
use frostline_wire::ObjectInfo;
use std::collections::{BTreeMap, BTreeSet};

/// Samples of a classification task, divided into those to train and those to validate with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// Class names, sorted; a label is an index into them.
    pub classes: Vec<String>,
    /// Samples to train with, by ascending key.
    pub train: Vec<Sample>,
    /// Samples to validate with, by ascending key.
    pub validation: Vec<Sample>,
}

/// One object and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The object's key, relative to the data root.
    pub key: String,
    /// Its version.
    pub etag: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// Index of its class.
    pub label: usize,
}

/// Why a listing is no classification task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// There is nothing in class folders.
    #[error(
        "no samples under '{root}': the data must be laid out as train/<class>/* and validation/<class>/*, or as <class>/* \
         with --validation, or in tar shards with a .cls file beside each image ({objects} objects lie there, none of them so)"
    )]
    Empty {
        /// The data root.
        root: String,
        /// Objects that were listed.
        objects: usize,
    },
    /// One of the two parts is missing.
    #[error("'{root}' has {present}/ but no {missing}/ folder; add {missing}/<class>/*")]
    MissingPart {
        /// The data root.
        root: String,
        /// The part that is there.
        present: &'static str,
        /// The part that is not.
        missing: &'static str,
    },
    /// A class is in one part only.
    #[error(
        "'{root}': the class '{class}' has a folder in {present}/ but none in {missing}/; add {missing}/{class}/ or remove {present}/{class}/"
    )]
    MissingClass {
        /// The data root.
        root: String,
        /// The class.
        class: String,
        /// The part that has it.
        present: &'static str,
        /// The part that has not.
        missing: &'static str,
    },
    /// There is nothing to tell apart.
    #[error("'{root}' has one class only ('{class}'); a classifier needs at least two class folders")]
    OneClass {
        /// The data root.
        root: String,
        /// The class.
        class: String,
    },
    /// The data are in one part and nothing says how to divide them.
    #[error(
        "'{root}' has no train/ and validation/ parts but {classes} classes; say which share to validate with: --validation 0.2"
    )]
    NotDivided {
        /// The data root.
        root: String,
        /// How many classes.
        classes: usize,
    },
    /// The data are divided and a share was given as well.
    #[error("'{root}' is divided into train/ and validation/ already; leave out --validation")]
    DividedTwice {
        /// The data root.
        root: String,
    },
    /// The share leaves one part empty.
    #[error("the validation share is {share}, it must lie between 0 and 1")]
    Share {
        /// As given.
        share: String,
    },
    /// A class is too small to divide.
    #[error(
        "'{root}': the class '{class}' has one sample only, it cannot be divided into training and validation; add samples"
    )]
    TooFew {
        /// The data root.
        root: String,
        /// The class.
        class: String,
    },
    /// The tuned model names classes that the data do not have.
    #[error("'{root}': the class '{class}' is not one the model knows; it knows {known}")]
    UnknownClass {
        /// The data root.
        root: String,
        /// The class.
        class: String,
        /// The model's classes.
        known: String,
    },
}

pub(crate) const TRAIN: &str = "train";
pub(crate) const VALIDATION: &str = "validation";
pub(crate) const TEST: &str = "test";

/// Objects by class.
type Classes = BTreeMap<String, Vec<ObjectInfo>>;

impl Dataset {
    /// Divides a listing: `train/<class>/*` and `validation/<class>/*`, or `<class>/*` with `validation_share` of every class
    /// (at least one sample stays on either side), drawn by `seed`. Hidden files and files outside class folders are
    /// left out.
    ///
    /// Samples inside shards have the class their label says, and lie in the part that a word of the shard's key names: `train`,
    /// `val` or `validation`, or `test` where there is no other to validate with. Shards of one part only are divided by the share.
    ///
    /// # Errors
    /// [`DatasetError`], naming the folder that is missing.
    pub fn from_listing(
        root: &str,
        objects: Vec<ObjectInfo>,
        validation_share: Option<f64>,
        seed: u64,
    ) -> Result<Self, DatasetError> {
        let mut folders = Folders::sort(objects);
        let root = root.to_owned();
        let (train, validation) = match (folders.parts.remove(TRAIN), folders.parts.remove(VALIDATION)) {
            (Some(_), Some(_)) if validation_share.is_some() => {
                return Err(DatasetError::DividedTwice { root });
            }
            (Some(train), Some(validation)) => (train, validation),
            (Some(_), None) => {
                return Err(DatasetError::MissingPart {
                    root,
                    present: TRAIN,
                    missing: VALIDATION,
                });
            }
            (None, Some(_)) => {
                return Err(DatasetError::MissingPart {
                    root,
                    present: VALIDATION,
                    missing: TRAIN,
                });
            }
            (None, None) if folders.classes.is_empty() => {
                return Err(DatasetError::Empty {
                    root,
                    objects: folders.objects,
                });
            }
            (None, None) => match validation_share {
                None => {
                    return Err(DatasetError::NotDivided {
                        root,
                        classes: folders.classes.len(),
                    });
                }
                Some(share) => divide(&root, folders.classes, share, seed)?,
            },
        };
        check_classes(&root, &train, &validation)?;
        let classes: Vec<String> = train.keys().cloned().collect();
        Ok(Self {
            classes,
            train: label(train),
            validation: label(validation),
        })
    }

    /// The class folders that [`Dataset::to_evaluate`] would find, sorted.
    pub(crate) fn class_folders(objects: &[ObjectInfo]) -> Vec<String> {
        Folders::sort(objects.to_vec())
            .into_evaluation()
            .into_keys()
            .collect()
    }

    /// The samples to measure a tuned model with: those of `validation/`, else all of `<class>/*`, labelled by the model's own
    /// `classes`.
    ///
    /// # Errors
    /// [`DatasetError::Empty`], and [`DatasetError::UnknownClass`] for a folder that is none of the model's classes.
    pub fn to_evaluate(
        root: &str,
        objects: Vec<ObjectInfo>,
        classes: &[String],
    ) -> Result<Vec<Sample>, DatasetError> {
        let count = objects.len();
        let part = Folders::sort(objects).into_evaluation();
        if part.is_empty() {
            return Err(DatasetError::Empty {
                root: root.to_owned(),
                objects: count,
            });
        }
        let mut samples = Vec::new();
        for (class, objects) in part {
            let label = classes.iter().position(|known| *known == class).ok_or_else(|| {
                DatasetError::UnknownClass {
                    root: root.to_owned(),
                    class,
                    known: classes.join(", "),
                }
            })?;
            samples.extend(objects.into_iter().map(|object| sample(object, label)));
        }
        samples.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(samples)
    }
}

/// Objects by the folders they lie in.
struct Folders {
    /// `train`, `validation` and, of shards, `test`, where they hold samples of classes.
    parts: BTreeMap<String, Classes>,
    /// The folders of the root, taken for classes, and samples of shards that are in no part.
    classes: Classes,
    objects: usize,
}

impl Folders {
    fn sort(mut objects: Vec<ObjectInfo>) -> Self {
        objects.sort_by(|left, right| left.key.cmp(&right.key));
        let mut folders = Self {
            parts: BTreeMap::new(),
            classes: Classes::new(),
            objects: objects.len(),
        };
        for object in objects {
            if let Some(sample) = ShardSample::of(&object) {
                let label = sample.label.to_owned();
                let classes = match sample.part {
                    Some(part) => folders.parts.entry(part.to_owned()).or_default(),
                    None => &mut folders.classes,
                };
                classes.entry(label).or_default().push(object);
                continue;
            }
            let components: Vec<&str> = object.key.split('/').collect();
            // Stores without folders mark them with empty objects whose key ends in a slash.
            if components
                .iter()
                .any(|component| component.is_empty() || component.starts_with('.'))
            {
                continue;
            }
            match components.as_slice() {
                [part @ (TRAIN | VALIDATION), class, _, ..] => {
                    let classes = folders.parts.entry((*part).to_owned()).or_default();
                    classes.entry((*class).to_owned()).or_default().push(object);
                }
                [class, _, ..] => folders
                    .classes
                    .entry((*class).to_owned())
                    .or_default()
                    .push(object),
                _ => {}
            }
        }
        folders.settle_shards();
        folders
    }

    /// Takes test data where there are no others to validate with, and has shards of one part only divided like folders without
    /// parts.
    fn settle_shards(&mut self) {
        let of_shards = |classes: &Classes| classes.values().flatten().any(|object| object.label.is_some());
        if let Some(test) = self.parts.remove(TEST) {
            self.parts.entry(VALIDATION.to_owned()).or_insert(test);
        }
        if self.parts.len() == 1 && self.parts.values().all(of_shards) {
            for (class, objects) in std::mem::take(&mut self.parts).into_values().flatten() {
                self.classes.entry(class).or_default().extend(objects);
            }
        }
    }

    /// The part to evaluate with.
    fn into_evaluation(mut self) -> Classes {
        self.parts
            .remove(VALIDATION)
            .or_else(|| self.parts.remove(TRAIN))
            .unwrap_or(self.classes)
    }
}

fn check_classes(root: &str, train: &Classes, validation: &Classes) -> Result<(), DatasetError> {
    let names = |part: &Classes| part.keys().cloned().collect::<BTreeSet<_>>();
    let missing = |class: &String, present, missing| {
        Err(DatasetError::MissingClass {
            root: root.to_owned(),
            class: class.clone(),
            present,
            missing,
        })
    };
    let (trained, validated) = (names(train), names(validation));
    if let Some(class) = trained.difference(&validated).next() {
        return missing(class, TRAIN, VALIDATION);
    }
    if let Some(class) = validated.difference(&trained).next() {
        return missing(class, VALIDATION, TRAIN);
    }
    match trained.first() {
        Some(class) if trained.len() == 1 => Err(DatasetError::OneClass {
            root: root.to_owned(),
            class: class.clone(),
        }),
        _ => Ok(()),
    }
}

/// Draws `share` of every class for validation.
fn divide(root: &str, classes: Classes, share: f64, seed: u64) -> Result<(Classes, Classes), DatasetError> {
    if !(share > 0.0 && share < 1.0) {
        return Err(DatasetError::Share {
            share: share.to_string(),
        });
    }
    let (mut train, mut validation) = (Classes::new(), Classes::new());
    for (number, (class, objects)) in classes.into_iter().enumerate() {
        if objects.len() < 2 {
            return Err(DatasetError::TooFew {
                root: root.to_owned(),
                class,
            });
        }
        let wanted = (objects.len() as f64 * share).round() as usize;
        let wanted = wanted.clamp(1, objects.len() - 1);
        let order = shuffle::order(objects.len(), seed, shuffle::Purpose::Division(number as u64));
        let chosen: BTreeSet<usize> = order.into_iter().take(wanted).collect();
        let (validated, trained): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .enumerate()
            .partition(|(index, _)| chosen.contains(index));
        train.insert(
            class.clone(),
            trained.into_iter().map(|(_, object)| object).collect(),
        );
        validation.insert(class, validated.into_iter().map(|(_, object)| object).collect());
    }
    Ok((train, validation))
}

fn label(classes: Classes) -> Vec<Sample> {
    let labelled = classes.into_values().enumerate();
    labelled
        .flat_map(|(label, objects)| objects.into_iter().map(move |object| sample(object, label)))
        .collect()
}

fn sample(object: ObjectInfo, label: usize) -> Sample {
    Sample {
        key: object.key,
        etag: object.etag,
        size: object.size,
        label,
    }
}
