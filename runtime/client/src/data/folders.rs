//! Objects sorted into parts and classes by the folders, or shards, they lie in.

use super::Listing;
use super::shards::{ShardSample, TEST, TRAIN, VALIDATION};
use frostline_images::{extension, is_image_name};
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

/// Hidden files, and the empty objects that stores without folders mark them with. A shard's sample is never one.
pub(crate) fn is_hidden(key: &str) -> bool {
    let of_shard = !listing_order(key).1.is_empty();
    !of_shard
        && key
            .split('/')
            .any(|segment| segment.is_empty() || segment.starts_with('.'))
}

/// Objects by the folders they lie in.
pub(crate) struct Folders<'a> {
    /// `train`, `validation` and, of shards, `test`, where they hold samples of classes.
    pub(crate) parts: BTreeMap<&'static str, Classes<'a>>,
    /// The folders of the root, taken for classes, and samples of shards that are in no part.
    pub(crate) classes: Classes<'a>,
}

impl<'a> Folders<'a> {
    pub(crate) fn sort(listing: &'a Listing, files: SampleFiles) -> Self {
        let mut objects: Vec<(u32, &str)> = listing
            .iter()
            .map(|(number, object)| (number, object.key))
            .collect();
        objects.sort_by_key(|(_, key)| *key);
        let named = files == SampleFiles::Images && objects.iter().any(|(_, key)| is_image_name(key));
        let is_sample = |key: &str| match files {
            SampleFiles::All => true,
            SampleFiles::Images if named => is_image_name(key),
            SampleFiles::Images => extension(key).is_none(),
        };
        let mut folders = Self {
            parts: BTreeMap::new(),
            classes: Classes::new(),
        };
        let mut of_shards = BTreeSet::new();
        for (number, key) in objects {
            if let Some(sample) = listing.get(number).and_then(ShardSample::of) {
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

    fn class(&mut self, part: Option<&'static str>, name: &'a str) -> &mut Class<'a> {
        let classes = match part {
            Some(part) => self.parts.entry(part).or_default(),
            None => &mut self.classes,
        };
        classes.entry(name).or_default()
    }

    /// Takes test data where there are no others to validate with, and has shards of one part only divided like folders without
    /// parts.
    fn settle_shards(&mut self, of_shards: &BTreeSet<Option<&'static str>>) {
        if let Some(test) = self.parts.remove(TEST) {
            self.parts.entry(VALIDATION).or_insert(test);
        }
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

    /// The part to evaluate with, and its folder.
    pub(crate) fn into_evaluation(mut self) -> (&'static str, Classes<'a>) {
        let validation = self.parts.remove(VALIDATION).map(|part| ("validation/", part));
        let train = self.parts.remove(TRAIN).map(|part| ("train/", part));
        validation.or(train).unwrap_or(("", self.classes))
    }
}

/// The part and the class whose folder holds the object. A shard is no folder.
fn class_folder(key: &str) -> Option<(Option<&'static str>, &str)> {
    let (key, "") = listing_order(key) else {
        return None;
    };
    let mut segments = key.splitn(4, '/');
    let (first, second, third) = (segments.next()?, segments.next()?, segments.next());
    match (first, third) {
        (TRAIN, Some(_)) => Some((Some(TRAIN), second)),
        (VALIDATION, Some(_)) => Some((Some(VALIDATION), second)),
        _ => Some((None, first)),
    }
}
