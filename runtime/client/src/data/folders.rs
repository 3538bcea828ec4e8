//! Objects sorted into parts and classes: by the folders or shards they lie in, or by a table.

use super::shards::ShardSample;
use super::{LabelTable, LabelsError, Listed, Listing, Part};
use frostline_images::{extension, is_image_name};
use frostline_job::Unlisted;
use frostline_wire::listing_order;
use std::collections::{BTreeMap, BTreeSet};

/// Which files in class folders are samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleFiles {
    /// Those with an image's name; where no object has one, those without an ending.
    Images,
    /// All but hidden ones, for guests that decode what they know.
    All,
}

/// Objects by class; classes and their folders are named as in the listing.
pub(crate) type Classes<'a> = BTreeMap<&'a str, Class<'a>>;

#[derive(Default)]
pub(crate) struct Class<'a> {
    /// Numbers of its objects.
    pub(crate) samples: Vec<u32>,
    /// Files beside them that are no images.
    pub(crate) others: usize,
    /// One of these.
    pub(crate) other: Option<&'a str>,
}

/// An object that is a sample, and what its place says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'a> {
    /// The object.
    pub object: Listed<'a>,
    /// The part that its folder or shard names.
    pub part: Option<Part>,
    /// Its class: what its shard says, or the folder it lies in.
    pub class: Option<&'a str>,
}

impl Listing {
    /// The objects that are samples by their names, by ascending key, with what their places say. Hidden ones are none.
    pub fn placed(&self, files: SampleFiles) -> Vec<Placed<'_>> {
        let objects = by_key(self);
        let is_sample = samples(&objects, files);
        let has_parts = |(_, key): &(u32, &str)| class_folder(key).is_some_and(|(part, _)| part.is_some());
        let divided = objects.iter().any(has_parts);
        let sample = |(number, key): &(u32, &str)| {
            let object = self.get(*number)?;
            if let Some(ShardSample { part, label }) = ShardSample::from_listed(object) {
                let class = Some(label);
                return Some(Placed { object, part, class });
            }
            if is_hidden(key) || !is_sample(key) {
                return None;
            }
            let (part, class) = class_folder(object.key).unzip();
            let (part, class) = match (part.flatten(), Part::of_key(object.key)) {
                // Beside parts that hold classes it holds none.
                (None, Some(part)) if divided => (Some(part), None),
                (part, _) => (part, class),
            };
            Some(Placed { object, part, class })
        };
        objects.iter().filter_map(sample).collect()
    }
}

/// Hidden files, and the empty objects that stores without folders mark them with. A shard's sample is never one.
pub(crate) fn is_hidden(key: &str) -> bool {
    let of_shard = !listing_order(key).1.is_empty();
    !of_shard
        && key
            .split('/')
            .any(|segment| segment.is_empty() || segment.starts_with('.'))
}

/// Objects by the folders they lie in.
#[derive(Default)]
pub(crate) struct Folders<'a> {
    /// Those that hold samples of classes.
    pub(crate) parts: BTreeMap<Part, Classes<'a>>,
    /// The folders of the root, taken for classes, and samples of shards that are in no part.
    pub(crate) classes: Classes<'a>,
    /// Images that a table has no line for, and their part.
    unlabeled: Vec<(Option<Part>, &'a str)>,
}

impl<'a> Folders<'a> {
    pub(crate) fn sort(listing: &'a Listing, files: SampleFiles) -> Self {
        let objects = by_key(listing);
        let is_sample = samples(&objects, files);
        let mut folders = Self::default();
        let mut of_shards = BTreeSet::new();
        for (number, key) in objects {
            if let Some(sample) = listing.get(number).and_then(ShardSample::from_listed) {
                of_shards.insert(sample.part);
                folders.class(sample.part, sample.label).samples.push(number);
            } else if !is_hidden(key)
                && let Some((part, name)) = class_folder(key)
            {
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

    /// Sorted by `table`; see [`Folders::check_trained`] and [`Folders::check_evaluated`] for images without a line.
    ///
    /// # Errors
    /// [`LabelsError`] where the table and the listing do not fit.
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

    /// Refuses images without a line, but for those outside of `train/` and `validation/` where folders say the parts.
    pub(crate) fn check_trained(&self, table: &LabelTable) -> Result<(), LabelsError> {
        let divided = !self.parts.is_empty() && !table.divides();
        self.check_labeled(table, |part| match part {
            Some(part) => part != Part::Test,
            None => !divided,
        })
    }

    /// The same of the part to evaluate with.
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
            "{} images have no line, the first is '{first}'; add lines, or leave them out with --unlisted skip",
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

    /// Has shards of one part only divided like folders without parts.
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

    /// The part to evaluate with unless it is said: `validation`, else `test`, else `train`; none of data without parts.
    pub(crate) fn evaluated(&self) -> Option<Part> {
        let mut parts = [Part::Validation, Part::Test, Part::Train].into_iter();
        parts.find(|part| self.parts.contains_key(part))
    }

    /// All samples.
    pub(crate) fn into_all(self) -> Classes<'a> {
        let mut all = self.classes;
        for (name, class) in self.parts.into_values().flatten() {
            all.entry(name).or_default().samples.extend(class.samples);
        }
        all
    }

    /// The samples of a part; of `None` those that are in no part.
    pub(crate) fn into_part(mut self, part: Option<Part>) -> Classes<'a> {
        match part {
            Some(part) => self.parts.remove(&part).unwrap_or_default(),
            None => self.classes,
        }
    }
}

/// The objects by ascending key.
fn by_key(listing: &Listing) -> Vec<(u32, &str)> {
    let objects = listing.iter().map(|(number, object)| (number, object.key));
    let mut objects: Vec<(u32, &str)> = objects.collect();
    objects.sort_by_key(|(_, key)| *key);
    objects
}

/// Which of the objects are samples by their names.
fn samples(objects: &[(u32, &str)], files: SampleFiles) -> impl Fn(&str) -> bool + use<> {
    let named = files == SampleFiles::Images && objects.iter().any(|(_, key)| is_image_name(key));
    move |key| match files {
        SampleFiles::All => key != LabelTable::KEY,
        SampleFiles::Images if named => is_image_name(key),
        SampleFiles::Images => extension(key).is_none(),
    }
}

fn no_image(table: &LabelTable, row: u32, key: &str) -> LabelsError {
    let images = frostline_images::EXTENSIONS.join(", .");
    table.at(
        row,
        format!("'{key}' is no image by its name (.{images}); leave the line out"),
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
        why: format!("there is no object '{key}'; write keys as they are below --data{like}"),
    }
}

/// The part and the class whose folder holds the object. A shard is no folder.
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
