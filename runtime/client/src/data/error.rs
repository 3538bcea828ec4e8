use super::{Listing, Part};
use frostline_wire::OutwardLinks;

/// What is wrong with a labels table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the labels table '{table}'{}: {why}", .line.map_or_else(String::new, |line| format!(", line {line}")))]
pub struct LabelsError {
    /// The table.
    pub table: String,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// What, and what to do.
    pub why: String,
}

impl DatasetError {
    /// No samples among these objects.
    pub(super) fn empty(root: &str, listing: &Listing) -> Self {
        let root = root.to_owned();
        let links = listing.no_keys.links.clone();
        if links.is_empty() {
            let objects = listing.len();
            return Self::Empty { root, objects };
        }
        Self::OutwardLinks { root, links }
    }
}

impl LabelsError {
    /// Something that lies in no line.
    pub(crate) fn of_table(table: &str, why: String) -> Self {
        Self {
            table: table.to_owned(),
            line: None,
            why,
        }
    }
}

/// Why a listing is no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// The labels table is wrong, or does not fit the listing.
    #[error(transparent)]
    Labels(#[from] LabelsError),
    /// There is nothing in class folders.
    #[error(
        "no samples under '{root}': the data must be laid out as train/<class>/* and validation/<class>/*, or as <class>/* \
         with --validation, or in tar shards with a .cls file beside each image, or labeled by a table labels.csv ({objects} objects lie there, none of them so)"
    )]
    Empty {
        /// The data root.
        root: String,
        /// Objects that were listed.
        objects: usize,
    },
    /// There is nothing in class folders but links that lead out of the root.
    #[error("no samples under '{root}': {links}")]
    OutwardLinks {
        /// The data root.
        root: String,
        /// Which.
        links: OutwardLinks,
    },
    /// A class folder without an image.
    #[error(
        "'{root}': the folder {folder} holds no image, only {files} other files such as '{first}'; images are told by their names (.{})"
        , frostline_images::EXTENSIONS.join(", .")
    )]
    NoImages {
        /// The data root.
        root: String,
        /// The folder.
        folder: String,
        /// Files in it.
        files: usize,
        /// One of them.
        first: String,
    },
    /// There is nothing to train with.
    #[error("'{root}' has validation/ but no train/ folder; add train/<class>/*")]
    NoTrain {
        /// The data root.
        root: String,
    },
    /// The part that was asked for is not there.
    #[error("'{root}' has no {part}/ part; add {part}/<class>/*, or ask for another part")]
    NoPart {
        /// The data root.
        root: String,
        /// The part.
        part: Part,
    },
    /// The parts have no class in common.
    #[error(
        "'{root}': train/ and validation/ have no class in common: {} in train/, {} in validation/; name their folders alike",
        in_quotes(train),
        in_quotes(validation)
    )]
    MissingClass {
        /// The data root.
        root: String,
        /// The classes of the one.
        train: Vec<String>,
        /// The classes of the other.
        validation: Vec<String>,
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
        "'{root}' has {}; pass --validation 0.2 to hold out a part of each class",
        undivided(*part, *classes)
    )]
    NotDivided {
        /// The data root.
        root: String,
        /// How many classes.
        classes: usize,
        /// The part they are in.
        part: Option<Part>,
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
    #[error("'{root}': the class '{class}' is not one the model knows")]
    UnknownClass {
        /// The data root.
        root: String,
        /// The class.
        class: String,
    },
}

/// Classes that a message names.
const SHOWN: usize = 20;

/// Some classes, for a sentence.
pub(super) fn in_quotes(classes: &[String]) -> String {
    match classes {
        [one] => format!("the class '{one}' is"),
        several => {
            let shown = several.iter().take(SHOWN).map(String::as_str);
            let shown = shown.collect::<Vec<_>>().join("', '");
            match several.len().checked_sub(SHOWN) {
                None | Some(0) => format!("the classes '{shown}' are"),
                Some(more) => format!("the classes '{shown}' and {more} more are"),
            }
        }
    }
}

fn undivided(part: Option<Part>, classes: usize) -> String {
    match part {
        Some(part) => format!("{part}/ ({classes} classes) but no validation/"),
        None => format!("no train/ and validation/ parts but {classes} classes"),
    }
}
