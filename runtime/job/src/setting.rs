//! One list for each group of settings: name, type, class, default, flag and text.

use serde_json::Value;

/// What a setting means for a run that is resumed. No setting is a secret itself; what opens a URL (a password, a signature) is cut
/// from whatever is written or compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Makes it another job when it changes.
    Identity,
    /// As [`Class::Identity`] where a job is reproducible: bits depend on it, losses do not.
    Exact,
    /// May change when a run is resumed.
    Free,
    /// Where something lies. May change; recorded by its whole path.
    Place,
}

/// A setting of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Its flag's name, with underscores.
    pub name: String,
    /// What it means for a run that is resumed.
    pub class: Class,
    /// As it is written.
    pub value: Value,
}

/// A value that a setting cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}; {must}")]
pub struct SettingError {
    /// The setting.
    pub what: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub must: String,
}

impl SettingError {
    /// Refuses `value` unless it `holds`.
    ///
    /// # Errors
    /// This one.
    pub fn unless(
        holds: bool,
        what: &'static str,
        value: &dyn std::fmt::Display,
        must: &str,
    ) -> Result<(), Self> {
        if holds {
            return Ok(());
        }
        Err(Self {
            what,
            value: value.to_string(),
            must: must.to_owned(),
        })
    }

    /// Refuses 0.
    ///
    /// # Errors
    /// This one.
    pub fn at_least_one(what: &'static str, value: usize) -> Result<(), Self> {
        Self::unless(value > 0, what, &value, "it must be at least 1")
    }
}

/// Defines a group of settings. Each line is `Class name: type = default => flag`, below its text, which `--help` shows.
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
            /// Its settings by their names, and what each means for a run that is resumed.
            pub(crate) const CLASSES: &[(&str, crate::Class)] =
                &[$( (stringify!($field), crate::Class::$class), )*];
        }
    };
}
pub(crate) use settings;
