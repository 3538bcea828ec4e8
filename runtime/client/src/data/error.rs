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
         with --validation, or in tar shards with a .cls file beside each image, or labelled by a table labels.csv ({objects} objects lie there, none of them so)"
    )]
    Empty {
        /// The data root.
        root: String,
        /// Objects that were listed.
        objects: usize,
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
        "'{root}': the class '{class}' is in {present}/ but not in {missing}/; add {missing}/{class}/ or, where a table says the classes, samples of it; or remove it"
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
        "'{root}' has no train/ and validation/ parts but {classes} classes; pass --validation 0.2 to hold out a part of each class"
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
    #[error("'{root}': the class '{class}' is not one the model knows")]
    UnknownClass {
        /// The data root.
        root: String,
        /// The class.
        class: String,
    },
}
