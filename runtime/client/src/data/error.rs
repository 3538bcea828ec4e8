use super::subfolders::below;
use super::{Listing, Part, Subfolders};
use frostline_tensor::{StandIn, is_cloud_placeholder};
use frostline_wire::OutwardLinks;

/// Error in a labels table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the labels table '{table}'{}: {why}", .line.map_or_else(String::new, |line| format!(", line {line}")))]
pub struct LabelsError {
    /// Name of the table.
    pub table: String,
    /// Line in the table, from 1.
    pub line: Option<u64>,
    /// Reason and next step.
    pub why: String,
    /// The setting that fits the table, if one is known.
    pub expected: Option<ExpectedLabels>,
}

/// Setting with which a table is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedLabels {
    /// The table has a column per label.
    Labels,
    /// The table has a column per number.
    Numbers,
    /// Samples without a line are omitted.
    UnlistedOmitted,
}

impl DatasetError {
    /// Returns the error for a listing without samples.
    pub(super) fn empty(root: &str, listing: &Listing) -> Self {
        let root = root.to_owned();
        let links = listing.no_keys.links.clone();
        if !links.is_empty() {
            return Self::OutwardLinks { root, links };
        }
        let objects = listing.len();
        let keys = listing.iter().map(|(_, object)| object.key);
        match keys.filter(|key| is_cloud_placeholder(key)).count() {
            0 => Self::Empty { root, objects },
            files => Self::Placeholders {
                root,
                files,
                stand_in: StandIn::ICloud,
            },
        }
    }
}

impl LabelsError {
    /// Creates an error in `line`, or in no particular line.
    pub(crate) fn new(table: &str, line: Option<u64>, why: String) -> Self {
        Self {
            table: table.to_owned(),
            line,
            why,
            expected: None,
        }
    }
}

/// Error when converting a listing into a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// The labels table is invalid or does not match the listing.
    #[error(transparent)]
    Labels(#[from] LabelsError),
    /// The class folders contain no samples.
    #[error(
        "no samples under '{root}' ({objects} objects found): use the layout train/<class>/* and validation/<class>/*, or <class>/* \
         with a share for validation, or tar shards with a .cls file next to each image, or a table labels.csv"
    )]
    Empty {
        /// The data root.
        root: String,
        /// Number of listed objects.
        objects: usize,
    },
    /// The images were moved to a cloud.
    #[error("no samples under '{root}': {files} files are each {stand_in}")]
    Placeholders {
        /// The data root.
        root: String,
        /// Number of placeholders.
        files: usize,
        /// Kind of placeholders.
        stand_in: StandIn,
    },
    /// The class folders contain only links out of the root.
    #[error("no samples under '{root}': {links}")]
    OutwardLinks {
        /// The data root.
        root: String,
        /// Number of links, with an example.
        links: OutwardLinks,
    },
    /// No image found in a class folder.
    #[error(
        "'{root}': the folder {folder} contains no image, only {files} other files such as '{first}'; image names end in .{}"
        , frostline_tensor::IMAGE_EXTENSIONS.join(", .")
    )]
    NoImages {
        /// The data root.
        root: String,
        /// Path of the folder.
        folder: String,
        /// Number of files in the folder.
        files: usize,
        /// Key of a file.
        first: String,
    },
    /// There are no training samples.
    #[error("'{root}' has validation/ but no train/ folder; add train/<class>/*")]
    NoTrain {
        /// The data root.
        root: String,
    },
    /// The requested part does not exist.
    #[error("'{root}' has no {part}/ part; add {part}/<class>/*, or use a different part")]
    NoPart {
        /// The data root.
        root: String,
        /// The part.
        part: Part,
    },
    /// Training and validation have no class in common.
    #[error(
        "'{root}': train/ and validation/ have no class in common: {} in train/, {} in validation/; use the same folder names",
        in_quotes(train),
        in_quotes(validation)
    )]
    MissingClass {
        /// The data root.
        root: String,
        /// Classes in `train/`.
        train: Vec<String>,
        /// Classes in `validation/`.
        validation: Vec<String>,
    },
    /// There is only one class.
    #[error(
        "'{root}' has only one class ('{class}'), but a classifier needs at least two class folders{}",
        deeper.as_ref().map_or_else(String::new, |folders| folders.advice(root))
    )]
    OneClass {
        /// The data root.
        root: String,
        /// The class.
        class: String,
        /// Folders below the class folder, if these may be the parts or classes.
        deeper: Option<Subfolders>,
    },
    /// It is unknown whether a folder is a part or a class.
    #[error(
        "'{root}': the folder {folder}/ contains class folders, so it is a part, but the folder {other}/ next to it is not; use '{}' \
         as the data root to train on this part, rename the folder if it is a class, or assign parts by the column split of a table",
        below(root, folder)
    )]
    PartOrClass {
        /// The data root.
        root: String,
        /// Folder named like a part.
        folder: String,
        /// Another folder with samples.
        other: String,
    },
    /// Validation samples are missing: there is no validation folder and the share is not set.
    #[error(
        "'{root}' has {}; some of the samples must be held out for validation",
        undivided(*part, *classes)
    )]
    NotDivided {
        /// The data root.
        root: String,
        /// Number of classes.
        classes: usize,
        /// Part of the data, if any.
        part: Option<Part>,
    },
    /// Validation is ambiguous: there is a validation folder and the share is set.
    #[error(
        "'{root}' is divided into train/ and validation/ already, so no share can be held out for validation"
    )]
    DividedTwice {
        /// The data root.
        root: String,
    },
    /// The validation share is out of range.
    #[error("invalid validation share {share}; use a number between 0 and 1")]
    Share {
        /// Value of the setting.
        share: String,
    },
    /// A class is too small to divide.
    #[error(
        "'{root}': the class '{class}' has only one sample and cannot be divided into training and validation; add samples"
    )]
    TooFew {
        /// The data root.
        root: String,
        /// Name of the class.
        class: String,
    },
    /// The tuned model does not have a class of the data.
    #[error("'{root}': the model does not have the class '{class}'")]
    UnknownClass {
        /// The data root.
        root: String,
        /// The class.
        class: String,
    },
}

/// Maximum number of classes in a message.
const SHOWN: usize = 20;

/// Formats class names followed by "is" or "are".
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
