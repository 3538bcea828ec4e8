//! Division of samples into training, validation and test parts.

use super::error::in_quotes;
use super::folders::{ClassSamples, Classes, Folders, SampleFiles};
use super::output_number::output_number;
use super::samples::Row;
use super::spelling::composed;
use super::{DatasetError, Listing, Part, shuffle};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Settings for the division of a listing into training and validation samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Division {
    /// Fraction of every class to use for validation (0 to 1, exclusive), if the data have no validation
    /// part. Both sides keep at least one sample per class.
    pub validation_share: Option<f64>,
    /// Seed of the random selection.
    pub seed: u64,
    /// Selection of sample files.
    pub files: SampleFiles,
}

/// Classes that may be a mistake in the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassWarning {
    /// Classes missing in training or validation. Classes in `train/` only are trained but not validated.
    /// Samples of classes in `validation/` only are omitted.
    OneSided {
        /// Names of the classes in ascending order.
        classes: Vec<String>,
        /// Part that contains these classes.
        present: Part,
    },
    /// Two classes whose names only differ in their Unicode normalization.
    SameName {
        /// Name of the classes, composed.
        class: String,
    },
}

impl fmt::Display for ClassWarning {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneSided {
                classes,
                present: Part::Train,
            } => write!(
                to,
                "{} in train/ but not in validation/: trained, not validated",
                in_quotes(classes)
            ),
            Self::OneSided { classes, present } => {
                write!(
                    to,
                    "{} in {present}/ but not in train/: left out",
                    in_quotes(classes)
                )
            }
            Self::SameName { class } => write!(
                to,
                "classes named '{class}' differ only in Unicode normalization; rename one if they are the same class"
            ),
        }
    }
}

/// Classes with samples, by part.
pub(super) struct ClassParts<'a> {
    pub(super) train: Classes<'a>,
    pub(super) validation: Classes<'a>,
    pub(super) test: Classes<'a>,
    /// True if class names are output numbers.
    numbered: bool,
}

impl<'a> ClassParts<'a> {
    pub(super) fn divide(
        root: &str,
        listing: &Listing,
        mut folders: Folders<'a>,
        division: Division,
    ) -> Result<Self, DatasetError> {
        folders.check_parts(root)?;
        let numbered = folders.numbered;
        if folders.parts.is_empty() && folders.classes.is_empty() {
            return Err(DatasetError::empty(root, listing));
        }
        let test = folders.parts.remove(&Part::Test).unwrap_or_default();
        let parts = [Part::Train, Part::Validation].map(|part| folders.parts.remove(&part));
        let (part, undivided) = match (parts, division.validation_share) {
            ([Some(_), Some(_)], Some(_)) => {
                return Err(DatasetError::DividedTwice {
                    root: root.to_owned(),
                });
            }
            ([Some(train), Some(validation)], None) => {
                check_images(root, Some(Part::Train), &train)?;
                check_images(root, Some(Part::Validation), &validation)?;
                return Ok(Self {
                    train,
                    validation,
                    test,
                    numbered,
                });
            }
            ([None, Some(_)], _) => {
                return Err(DatasetError::NoTrain {
                    root: root.to_owned(),
                });
            }
            ([Some(train), None], _) => (Some(Part::Train), train),
            ([None, None], _) => (None, folders.classes),
        };
        let Some(share) = division.validation_share else {
            return Err(DatasetError::NotDivided {
                root: root.to_owned(),
                classes: undivided.len(),
                part,
            });
        };
        check_images(root, part, &undivided)?;
        let (train, validation) = divide(root, undivided, share, division.seed)?;
        Ok(Self {
            train,
            validation,
            test,
            numbered,
        })
    }

    /// Removes classes that are not trained from the validation samples. Returns warnings about classes.
    ///
    /// # Errors
    /// Returns [`DatasetError::MissingClass`] if the parts have no class in common.
    pub(super) fn settle(&mut self, root: &str) -> Result<Vec<ClassWarning>, DatasetError> {
        let of_train = lacking(&self.train, &self.validation);
        let of_validation = lacking(&self.validation, &self.train);
        self.validation.retain(|class, _| self.train.contains_key(class));
        if self.validation.is_empty() {
            return Err(DatasetError::MissingClass {
                root: root.to_owned(),
                train: of_train,
                validation: of_validation,
            });
        }
        let sides = [(Part::Train, of_train), (Part::Validation, of_validation)];
        let one_sided = sides.into_iter().filter(|(_, classes)| !classes.is_empty());
        let one_sided = one_sided.map(|(present, classes)| ClassWarning::OneSided { classes, present });
        let mut seen = BTreeSet::new();
        let names = self.train.keys().filter(|name| !name.is_ascii());
        let twice = names
            .map(|name| composed(name))
            .filter(|name| !seen.insert(name.clone()));
        let twice = twice.map(|class| ClassWarning::SameName { class });
        Ok(one_sided.chain(twice).collect())
    }

    /// Returns the names of the outputs: the trained classes in ascending order or, if class names are output
    /// numbers, all numbers up to the largest. A missing number is a class without samples.
    pub(super) fn classes(&self) -> Vec<String> {
        class_names(self.numbered, self.train.keys().copied())
    }

    /// Returns the samples of each part with class indices. Samples of untrained classes are omitted.
    pub(super) fn labeled(self) -> [Vec<Row>; 3] {
        let labels: BTreeMap<&str, u32> = self
            .train
            .keys()
            .enumerate()
            .map(|(index, class)| {
                let number = output_number(class).filter(|_| self.numbered);
                (*class, number.unwrap_or(index) as u32)
            })
            .collect();
        [self.train, self.validation, self.test].map(|part| {
            let labeled = part
                .into_iter()
                .filter_map(|(class, objects)| Some((*labels.get(class)?, objects)));
            let rows = labeled.flat_map(|(label, class)| {
                class.samples.into_iter().map(move |object| Row { object, label })
            });
            rows.collect()
        })
    }
}

/// Returns the names in `classes` or, if these are output numbers, the names of all outputs up to the largest.
pub(super) fn class_names<'a>(numbered: bool, classes: impl Iterator<Item = &'a str>) -> Vec<String> {
    if !numbered {
        return classes.map(str::to_owned).collect();
    }
    let largest = classes.filter_map(output_number).max();
    let outputs = 0..largest.map_or(0, |largest| largest + 1);
    outputs.map(|number| number.to_string()).collect()
}

pub(super) fn check_images(
    root: &str,
    part: Option<Part>,
    classes: &Classes<'_>,
) -> Result<(), DatasetError> {
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

/// Returns the names in `classes` that `others` does not contain.
fn lacking(classes: &Classes<'_>, others: &Classes<'_>) -> Vec<String> {
    let names = classes.keys().filter(|class| !others.contains_key(*class));
    names.map(|class| (*class).to_owned()).collect()
}

/// Selects `share` of every class for validation.
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
    let mut train = Classes::new();
    let mut validation = Classes::new();
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
        let mut trained = ClassSamples::default();
        let mut validated = ClassSamples::default();
        for (index, object) in (0_u32..).zip(objects) {
            let side = if chosen.contains(&index) {
                &mut validated
            } else {
                &mut trained
            };
            side.samples.push(object);
        }
        train.insert(name, trained);
        validation.insert(name, validated);
    }
    Ok((train, validation))
}
