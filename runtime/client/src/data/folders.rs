//! Objects sorted into parts and classes, according to folders, shards or a labels table.

use super::output_number::output_number;
use super::part::PartFolders;
use super::spelling::composed;
use super::subfolders::Subfolders;
use super::{DatasetError, ExpectedLabels, LabelTable, LabelsError, Listed, Listing, Part};
use frostline_job::Unlisted;
use frostline_tensor::{IMAGE_EXTENSIONS, extension, is_hidden_name, is_image_name};
use frostline_wire::listing_order;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Selection of sample files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleFiles {
    /// Files with the extension of an image. If there are none, files without an extension.
    Images,
    /// All files except hidden ones, for guests that decode other formats.
    All,
}

/// Objects by class. Class and folder names are borrowed from the listing.
pub(crate) type Classes<'a> = BTreeMap<&'a str, ClassSamples<'a>>;

#[derive(Default)]
pub(crate) struct ClassSamples<'a> {
    /// Indices of the samples in the listing.
    pub(crate) samples: Vec<u32>,
    /// Number of other files in the class folder.
    pub(crate) others: usize,
    /// Key of one of the other files.
    pub(crate) other: Option<&'a str>,
}

/// A sample with the part and class derived from the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Object in the listing.
    pub object: Listed<'a>,
    /// Part according to the folder or shard.
    pub part: Option<Part>,
    /// Class according to the shard or the folder.
    pub class: Option<&'a str>,
}

impl Listing {
    /// Returns the objects that are samples according to their names, sorted by key, with parts and classes.
    /// Hidden files are skipped.
    pub fn placed(&self, files: SampleFiles) -> Vec<Placed<'_>> {
        let objects = by_key(self);
        let is_sample = samples(&objects, files);
        let part_folders = PartFolders::of_samples(sample_keys(&objects, &is_sample));
        objects
            .iter()
            .filter_map(|(number, key)| {
                let object = self.get(*number)?;
                if is_hidden(key) {
                    return None;
                }
                if let Some((part, label)) = in_shard(object) {
                    let class = Some(label);
                    return Some(Placed { object, part, class });
                }
                if !is_sample(key) {
                    return None;
                }
                Some(Placed {
                    object,
                    part: part_folders.part(object.key),
                    class: part_folders.class(object.key).map(|(_, class)| class),
                })
            })
            .collect()
    }
}

/// Returns true for hidden files, also in shards, and for the empty objects that mark folders in some stores.
pub(crate) fn is_hidden(key: &str) -> bool {
    let (object, member) = listing_order(key);
    is_hidden_name(object) || !member.is_empty() && is_hidden_name(member)
}

/// Objects by folder.
#[derive(Default)]
pub(crate) struct Folders<'a> {
    /// Parts with class folders.
    pub(crate) parts: BTreeMap<Part, Classes<'a>>,
    /// Classes that do not belong to a part: folders in the root, and labels in shards whose key names no
    /// part.
    pub(crate) classes: Classes<'a>,
    /// The folders that are parts.
    pub(super) part_folders: PartFolders<'a>,
    /// True if class names are output numbers: labels of shards, or a table with all numbers from 0.
    pub(super) numbered: bool,
    /// Images missing in the table, with part and key.
    unlabeled: Vec<(Option<Part>, &'a str)>,
}

impl<'a> Folders<'a> {
    /// Sorts objects according to `table`, or to folders without a table.
    ///
    /// # Errors
    /// Returns [`LabelsError`] if the table does not match the listing.
    pub(crate) fn new(
        listing: &'a Listing,
        table: Option<&'a LabelTable>,
        files: SampleFiles,
    ) -> Result<Self, LabelsError> {
        match table {
            Some(table) => Self::of_table(listing, table, files),
            None => Ok(Self::sort(listing, files)),
        }
    }

    pub(crate) fn sort(listing: &'a Listing, files: SampleFiles) -> Self {
        let objects = by_key(listing);
        let is_sample = samples(&objects, files);
        let mut folders = Self {
            part_folders: PartFolders::of_samples(sample_keys(&objects, &is_sample)),
            ..Self::default()
        };
        let mut of_shards = BTreeSet::new();
        let mut has_class_folders = false;
        for (number, key) in objects {
            if is_hidden(key) {
                continue;
            }
            if let Some((part, label)) = listing.get(number).and_then(in_shard) {
                of_shards.insert(part);
                folders.class(part, label).samples.push(number);
            } else if let Some((part, name)) = folders.part_folders.class(key) {
                has_class_folders = true;
                let class = folders.class(part, name);
                if is_sample(key) {
                    class.samples.push(number);
                } else {
                    class.others += 1;
                    class.other.get_or_insert(key);
                }
            }
        }
        folders.settle_shards(&of_shards);
        folders.merge_spellings();
        folders.numbered =
            !has_class_folders && folders.all_classes().all(|name| output_number(name).is_some());
        folders
    }

    /// Sorts objects according to `table`. Images without a line are checked later by
    /// [`Folders::check_trained`] and [`Folders::check_evaluated`].
    fn of_table(
        listing: &'a Listing,
        table: &'a LabelTable,
        files: SampleFiles,
    ) -> Result<Self, LabelsError> {
        let objects = by_key(listing);
        let is_sample = samples(&objects, files);
        table.check_header(|key| objects.binary_search_by_key(&key, |(_, key)| key).is_ok())?;
        let listed = sample_keys(&objects, |key| table.row(key).is_some());
        let mut folders = Self {
            part_folders: PartFolders::of_table(sample_keys(&objects, &is_sample), listed),
            numbered: table.is_numbered(),
            ..Self::default()
        };
        let mut of_shards = BTreeSet::new();
        let mut seen = vec![false; table.len()];
        for (number, key) in &objects {
            let listed = table.row(key);
            let part = match &table.parts {
                Some(parts) => listed.and_then(|row| parts.get(row as usize)).copied(),
                None => folders.part_folders.part(key),
            };
            let Some(row) = listed else {
                if is_sample(key) && !is_hidden(key) {
                    folders.unlabeled.push((part, *key));
                }
                continue;
            };
            if !is_sample(key) {
                return Err(no_image(table, row, key));
            }
            if let Some(seen) = seen.get_mut(row as usize) {
                *seen = true;
            }
            if !listing_order(key).1.is_empty() && table.parts.is_none() {
                of_shards.insert(part);
            }
            folders.class(part, table.class(row)).samples.push(*number);
        }
        if let Some((line, key)) = table.first_without(&seen) {
            return Err(unknown_key(table, line, key, &objects));
        }
        folders.settle_shards(&of_shards);
        folders.merge_spellings();
        Ok(folders)
    }

    /// Gives classes outside `train/` the spelling of the training class if names only differ in their Unicode
    /// normalization: macOS and Linux spell the same name differently.
    fn merge_spellings(&mut self) {
        let Some(train) = self.parts.get(&Part::Train) else {
            return;
        };
        let names = train.keys().copied().filter(|name| !name.is_ascii());
        let trained: HashMap<String, &'a str> = names.map(|name| (composed(name), name)).collect();
        for (_, classes) in self.parts.iter_mut().filter(|(part, _)| **part != Part::Train) {
            let renamed = classes.keys().filter_map(|name| {
                let spelling = trained
                    .get(&composed(name))
                    .filter(|spelling| *spelling != name)?;
                (!classes.contains_key(spelling)).then_some((*name, *spelling))
            });
            let renamed: Vec<(&str, &str)> = renamed.collect();
            for (name, spelling) in renamed {
                if let Some(class) = classes.remove(name) {
                    classes.insert(spelling, class);
                }
            }
        }
    }

    /// Names of the classes of all parts, with repetitions.
    fn all_classes(&self) -> impl Iterator<Item = &'a str> {
        let classes = self.parts.values().chain([&self.classes]);
        classes.flat_map(|classes| classes.keys().copied())
    }

    /// Returns an error if a folder may be a part or a class.
    pub(crate) fn check_parts(&self, root: &str) -> Result<(), DatasetError> {
        match self.part_folders.ambiguous {
            None => Ok(()),
            Some([folder, other]) => Err(DatasetError::PartOrClass {
                root: root.to_owned(),
                folder: folder.to_owned(),
                other: other.to_owned(),
            }),
        }
    }

    /// Returns an error if there is only one class to train.
    pub(crate) fn check_classes(&self, root: &str, listing: &Listing) -> Result<(), DatasetError> {
        let trained = match self.parts.get(&Part::Train) {
            None if !self.parts.is_empty() => return Ok(()),
            None => &self.classes,
            Some(train) => train,
        };
        match trained.first_key_value() {
            Some((name, class)) if trained.len() == 1 => Err(DatasetError::OneClass {
                root: root.to_owned(),
                class: (*name).to_owned(),
                deeper: Subfolders::find(listing, &class.samples),
            }),
            _ => Ok(()),
        }
    }

    /// Returns an error if an image without a line is part of the training data. If folders determine the
    /// parts, only `train/` and `validation/` count.
    pub(crate) fn check_trained(&self, table: &LabelTable) -> Result<(), LabelsError> {
        let divided = !self.parts.is_empty() && table.parts.is_none();
        self.check_labeled(table, |part| match part {
            Some(part) => part != Part::Test,
            None => !divided,
        })
    }

    /// Returns an error if an image without a line belongs to the part to evaluate.
    pub(crate) fn check_evaluated(
        &self,
        table: &LabelTable,
        evaluated: Option<Part>,
    ) -> Result<(), LabelsError> {
        self.check_labeled(table, |part| table.parts.is_some() || part == evaluated)
    }

    fn check_labeled(
        &self,
        table: &LabelTable,
        counts: impl Fn(Option<Part>) -> bool,
    ) -> Result<(), LabelsError> {
        if table.unlisted == Unlisted::Skip {
            return Ok(());
        }
        let mut missing = self.unlabeled.iter().filter(|(part, _)| counts(*part));
        let Some((_, first)) = missing.next() else {
            return Ok(());
        };
        let why = format!(
            "{} images have no line (first: '{first}'); add lines, or omit these images",
            1 + missing.count()
        );
        Err(LabelsError {
            expected: Some(ExpectedLabels::UnlistedOmitted),
            ..LabelsError::new(&table.name, None, why)
        })
    }

    fn class(&mut self, part: Option<Part>, name: &'a str) -> &mut ClassSamples<'a> {
        let classes = match part {
            Some(part) => self.parts.entry(part).or_default(),
            None => &mut self.classes,
        };
        classes.entry(name).or_default()
    }

    /// Moves samples of shards out of parts if there is only one part, so that they are divided like folders
    /// without parts.
    fn settle_shards(&mut self, of_shards: &BTreeSet<Option<Part>>) {
        let mut parts = of_shards.iter().flatten();
        if self.parts.len() == 1 && parts.next().is_some() {
            for (class, objects) in std::mem::take(&mut self.parts).into_values().flatten() {
                self.classes
                    .entry(class)
                    .or_default()
                    .samples
                    .extend(objects.samples);
            }
        }
    }

    /// Returns the default part to evaluate. This is validation, test or train, in this order of preference.
    /// Returns `None` if there are no parts.
    pub(crate) fn default_part(&self) -> Option<Part> {
        let mut parts = [Part::Validation, Part::Test, Part::Train].into_iter();
        parts.find(|part| self.parts.contains_key(part))
    }

    pub(crate) fn into_all(self) -> Classes<'a> {
        let mut all = self.classes;
        for (name, class) in self.parts.into_values().flatten() {
            all.entry(name).or_default().samples.extend(class.samples);
        }
        all
    }

    /// Returns the samples in `part`. If `part` is `None`, returns samples that do not belong to a part.
    pub(crate) fn into_part(mut self, part: Option<Part>) -> Classes<'a> {
        match part {
            Some(part) => self.parts.remove(&part).unwrap_or_default(),
            None => self.classes,
        }
    }
}

/// Returns the part according to the shard's key and the class of a sample in a shard. Returns `None` if the object
/// is not in a shard or does not have a class.
fn in_shard(object: Listed<'_>) -> Option<(Option<Part>, &str)> {
    let (shard, name) = listing_order(object.key);
    let label = object.label.filter(|_| !name.is_empty())?;
    Some((Part::of_shard(shard), label))
}

/// Returns the visible keys of samples outside shards.
fn sample_keys<'o, 'a>(
    objects: &'o [(u32, &'a str)],
    is_sample: impl Fn(&str) -> bool + 'o,
) -> impl Iterator<Item = &'a str> {
    let keys = objects.iter().map(|(_, key)| *key);
    keys.filter(move |key| listing_order(key).1.is_empty() && !is_hidden(key) && is_sample(key))
}

/// Returns the objects sorted by key.
fn by_key(listing: &Listing) -> Vec<(u32, &str)> {
    let objects = listing.iter().map(|(number, object)| (number, object.key));
    let mut objects: Vec<(u32, &str)> = objects.collect();
    objects.sort_by_key(|(_, key)| *key);
    objects
}

/// Returns a predicate for keys of samples.
fn samples(objects: &[(u32, &str)], files: SampleFiles) -> impl Fn(&str) -> bool + use<> {
    let named = files == SampleFiles::Images && objects.iter().any(|(_, key)| is_image_name(key));
    move |key| match files {
        SampleFiles::All => key != LabelTable::KEY,
        SampleFiles::Images if named => is_image_name(key),
        SampleFiles::Images => extension(key).is_none(),
    }
}

fn no_image(table: &LabelTable, row: u32, key: &str) -> LabelsError {
    let images = IMAGE_EXTENSIONS.join(", .");
    table.at(
        row,
        format!("'{key}' does not have an image extension (.{images}); remove the line"),
    )
}

fn unknown_key(table: &LabelTable, line: u64, key: &str, objects: &[(u32, &str)]) -> LabelsError {
    let mut visible = objects
        .iter()
        .filter(|(_, key)| !is_hidden(key) && *key != LabelTable::KEY);
    let like = visible
        .next()
        .map_or_else(String::new, |(_, key)| format!(", such as '{key}'"));
    let why = format!("no object '{key}' exists; use keys relative to the data root{like}");
    LabelsError::new(&table.name, Some(line), why)
}
