//! Objects sorted into parts and classes, according to folders, shards or a labels table.

use super::shards::ShardSample;
use super::{LabelTable, LabelsError, Listed, Listing, Part};
use frostline_job::Unlisted;
use frostline_tensor::{IMAGE_EXTENSIONS, extension, is_hidden_name, is_image_name};
use frostline_wire::listing_order;
use std::collections::{BTreeMap, BTreeSet};

/// Selection of sample files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleFiles {
    /// Files with the extension of an image. If there are none, files without an extension.
    Images,
    /// All files except hidden ones, for guests that decode other formats.
    All,
}

/// Objects by class. Class and folder names are borrowed from the listing.
pub(crate) type Classes<'a> = BTreeMap<&'a str, Class<'a>>;

#[derive(Default)]
pub(crate) struct Class<'a> {
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
        let has_parts = |(_, key): &(u32, &str)| class_folder(key).is_some_and(|(part, _)| part.is_some());
        let divided = objects.iter().any(has_parts);
        let sample = |(number, key): &(u32, &str)| {
            let object = self.get(*number)?;
            if is_hidden(key) {
                return None;
            }
            if let Some(ShardSample { part, label }) = ShardSample::from_listed(object) {
                let class = Some(label);
                return Some(Placed { object, part, class });
            }
            if !is_sample(key) {
                return None;
            }
            let (part, class) = class_folder(object.key).unzip();
            let (part, class) = match (part.flatten(), Part::of_key(object.key)) {
                // If there are parts with class folders, files directly in a part have no class.
                (None, Some(part)) if divided => (Some(part), None),
                (part, _) => (part, class),
            };
            Some(Placed { object, part, class })
        };
        objects.iter().filter_map(sample).collect()
    }
}

/// Returns true for hidden files, also in shards, and for the empty objects that mark folders in some stores.
pub(crate) fn is_hidden(key: &str) -> bool {
    let (object, member) = listing_order(key);
    is_hidden_name(object) || !member.is_empty() && is_hidden_name(member)
}

/// Returns true for the hidden file with which macOS replaces a file that it moved to iCloud.
pub(crate) fn is_cloud_placeholder(key: &str) -> bool {
    extension(key) == Some("icloud")
}

/// Objects by folder.
#[derive(Default)]
pub(crate) struct Folders<'a> {
    /// Parts with class folders.
    pub(crate) parts: BTreeMap<Part, Classes<'a>>,
    /// Classes that do not belong to a part: folders in the root, and labels in shards whose key names no
    /// part.
    pub(crate) classes: Classes<'a>,
    /// Images missing in the table, with part and key.
    unlabeled: Vec<(Option<Part>, &'a str)>,
}

impl<'a> Folders<'a> {
    pub(crate) fn sort(listing: &'a Listing, files: SampleFiles) -> Self {
        let objects = by_key(listing);
        let is_sample = samples(&objects, files);
        let mut folders = Self::default();
        let mut of_shards = BTreeSet::new();
        for (number, key) in objects {
            if is_hidden(key) {
                continue;
            }
            if let Some(sample) = listing.get(number).and_then(ShardSample::from_listed) {
                of_shards.insert(sample.part);
                folders.class(sample.part, sample.label).samples.push(number);
            } else if let Some((part, name)) = class_folder(key) {
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
        folders
    }

    /// Sorts objects according to `table`. Images without a line are checked later by
    /// [`Folders::check_trained`] and [`Folders::check_evaluated`].
    ///
    /// # Errors
    /// Returns [`LabelsError`] if the table does not match the listing.
    pub(crate) fn of_table(
        listing: &'a Listing,
        table: &'a LabelTable,
        files: SampleFiles,
    ) -> Result<Self, LabelsError> {
        let objects = by_key(listing);
        let is_sample = samples(&objects, files);
        let is_key = |key: &str| objects.binary_search_by_key(&key, |(_, key)| key).is_ok();
        table.check_header(is_key)?;
        let (mut folders, mut of_shards) = (Self::default(), BTreeSet::new());
        let mut seen = vec![false; table.len()];
        for (number, key) in &objects {
            let listed = table.row(key);
            let part = table.part(listed, key);
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
            if !listing_order(key).1.is_empty() && !table.divides() {
                of_shards.insert(part);
            }
            folders.class(part, table.class(row)).samples.push(*number);
        }
        if let Some((line, key)) = table.first_without(&seen) {
            return Err(unknown_key(table, line, key, &objects));
        }
        folders.settle_shards(&of_shards);
        Ok(folders)
    }

    /// Returns an error if an image without a line is part of the training data. If folders determine the
    /// parts, only `train/` and `validation/` count.
    pub(crate) fn check_trained(&self, table: &LabelTable) -> Result<(), LabelsError> {
        let divided = !self.parts.is_empty() && !table.divides();
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
        self.check_labeled(table, |part| table.divides() || part == evaluated)
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
            "{} images have no line (first: '{first}'); add lines, or omit the images with --unlisted skip",
            1 + missing.count()
        );
        Err(LabelsError::of_table(table.name(), why))
    }

    fn class(&mut self, part: Option<Part>, name: &'a str) -> &mut Class<'a> {
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
    LabelsError {
        table: table.name().to_owned(),
        line: Some(line),
        why: format!("no object '{key}' exists; use keys relative to --data{like}"),
    }
}

/// Returns the part and the class of the folder that contains the object. Shards are not folders.
fn class_folder(key: &str) -> Option<(Option<Part>, &str)> {
    let (key, "") = listing_order(key) else {
        return None;
    };
    let mut segments = key.splitn(4, '/');
    let (first, second, third) = (segments.next()?, segments.next()?, segments.next());
    match (Part::from_word(first), third) {
        (Some(part), Some(_)) => Some((Some(part), second)),
        _ => Some((None, first)),
    }
}
