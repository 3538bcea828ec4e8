//! Names of uploads in admin commands, either `TENANT/NAME` or just `NAME` for a shared model.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a name in bytes. Hosts have the same limit.
const LONGEST: usize = 63;

/// A guest or model that belongs to a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnUpload {
    pub(crate) tenant: String,
    pub(crate) name: String,
}

/// A model of a tenant, or a shared model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UploadName {
    Own(OwnUpload),
    Shared(String),
}

impl FromStr for OwnUpload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tenant, name) = text.split_once('/').ok_or_else(|| {
            format!("{text:?} does not name the tenant; write TENANT/NAME, such as acme/prefix")
        })?;
        Ok(Self {
            tenant: upload_name(tenant)?,
            name: upload_name(name)?,
        })
    }
}

impl FromStr for UploadName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            text.parse().map(Self::Own)
        } else {
            upload_name(text).map(Self::Shared)
        }
    }
}

impl fmt::Display for OwnUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.name)
    }
}

/// Checks a name in the same way as hosts, because names become part of URLs.
pub(super) fn upload_name(text: &str) -> Result<String, String> {
    if text.len() <= LONGEST
        && text.bytes().next().is_some_and(is_letter_or_digit)
        && text
            .bytes()
            .all(|byte| is_letter_or_digit(byte) || matches!(byte, b'.' | b'_' | b'-'))
    {
        return Ok(text.to_owned());
    }
    Err(format!(
        "invalid name {text:?}: expected up to {LONGEST} of a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
    ))
}

fn is_letter_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_and_a_name_or_a_name_alone() {
        let own = OwnUpload {
            tenant: "acme".to_owned(),
            name: "prefix-1.0".to_owned(),
        };
        assert_eq!("acme/prefix-1.0".parse(), Ok(own.clone()));
        assert_eq!(own.to_string(), "acme/prefix-1.0");
        assert_eq!("acme/prefix-1.0".parse(), Ok(UploadName::Own(own)));
        assert_eq!("resnet18".parse(), Ok(UploadName::Shared("resnet18".to_owned())));
        assert!(
            "resnet18"
                .parse::<OwnUpload>()
                .unwrap_err()
                .contains("TENANT/NAME")
        );
        for bad in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "A/b",
            "a/b?x",
            "a/..",
            "_shared/a",
            "a b",
        ] {
            assert!(bad.parse::<UploadName>().is_err(), "{bad}");
        }
        assert!("x".repeat(64).parse::<UploadName>().is_err());
    }
}
