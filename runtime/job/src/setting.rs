//! The macros that define groups of settings and their values.

use serde_json::Value;

/// Effect of a setting on a resumed run. Settings contain no secrets, because passwords and signatures in
/// URLs are removed before settings are written or compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A run cannot be resumed with a different value.
    Identity,
    /// Treated as [`Class::Identity`] in reproducible jobs, because the value affects bits. Losses are not
    /// affected.
    Exact,
    /// May change when a run is resumed.
    Free,
    /// A location, which may change when a run is resumed. Paths are recorded as absolute paths.
    Place,
}

/// Job setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Name of the flag, with underscores.
    pub name: String,
    /// Effect on a resumed run.
    pub class: Class,
    /// Serialized value.
    pub value: Value,
}

/// A setting has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}; {must}")]
pub struct SettingError {
    /// Name of the setting.
    pub what: &'static str,
    /// Invalid value.
    pub value: String,
    /// Valid values or next steps for the message.
    pub must: String,
    /// The conflict, if the value is valid by itself.
    pub conflict: Option<Conflict>,
}

/// Conflict of a setting with another setting, the model or the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// The objective `cost` has no prices.
    NoPrices,
    /// An int8 prefix is exported, but not computed.
    PrefixNotInt8,
    /// A reproducible job with gradual unfreezing has no fixed split.
    NoFixedSplit,
    /// Both the parameters of the guest and single preprocessing settings define the recipe.
    TwoRecipes,
    /// The input of a kept classifier is standardized.
    KeptStandardized,
    /// The classifier of the model does not fit the data.
    HeadNotKept,
    /// The network does not end in a classifier that can be replaced.
    NoHead,
    /// The division has training images of the model in the validation part. The division of that training
    /// has this share and seed.
    OtherDivision {
        /// Share of the validation part, 0 to 1.
        share: String,
        /// Seed of the division.
        seed: u64,
    },
}

impl SettingError {
    /// Creates an error without a conflict.
    pub fn new(what: &'static str, value: impl Into<String>, must: impl Into<String>) -> Self {
        Self {
            what,
            value: value.into(),
            must: must.into(),
            conflict: None,
        }
    }

    /// Sets the conflict.
    #[must_use]
    pub fn with_conflict(self, conflict: Conflict) -> Self {
        Self {
            conflict: Some(conflict),
            ..self
        }
    }

    /// Checks a condition for `value`.
    ///
    /// # Errors
    /// Returns this error if `holds` is false.
    pub fn require(
        holds: bool,
        what: &'static str,
        value: &dyn std::fmt::Display,
        must: &str,
    ) -> Result<(), Self> {
        if holds {
            return Ok(());
        }
        Err(Self::new(what, value.to_string(), must))
    }

    /// Checks that `value` is at least 1.
    ///
    /// # Errors
    /// Returns this error if `value` is 0.
    pub fn at_least_one(what: &'static str, value: usize) -> Result<(), Self> {
        Self::require(value > 0, what, &value, "it must be at least 1")
    }
}

/// Defines a group of settings. Each line has the form `Class name: type = default => flag`. `--help` shows
/// the doc comment above the line.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $(#[command($($command:tt)*)])?
        $name:ident {
            $( $(#[doc = $doc:literal])+ $class:ident $field:ident: $type:ty = $default:expr => $flag:meta; )*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "flags", derive(clap::Args))]
        $(#[cfg_attr(feature = "flags", command($($command)*))])?
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $doc])+ #[cfg_attr(feature = "flags", $flag)] pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $name {
            /// Names and classes of all settings in this group.
            pub(crate) const CLASSES: &[(&str, crate::Class)] =
                &[$( (stringify!($field), crate::Class::$class), )*];
        }
    };
}
pub(crate) use settings;

/// Defines enums with the same names in files and flags, in this case.
macro_rules! names {
    ($case:literal, $( $(#[doc = $about:literal])+ $name:ident { $( $(#[$meta:meta])+ $value:ident, )+ } )+) => {$(
        $(#[doc = $about])+
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, strum::EnumString, strum::VariantNames,
        )]
        #[serde(rename_all = $case)]
        #[strum(serialize_all = $case)]
        pub enum $name { $( $(#[$meta])+ $value, )+ }
    )+};
}
pub(crate) use names;
