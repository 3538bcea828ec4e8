//! Remote admins in the sections `[admins.NAME]`.

use super::error::ConfigError;
use super::settings::{AdminRole, AdminSettings};
use chrono::{NaiveDate, NaiveTime};
use http::HeaderName;
use http::header::AUTHORIZATION;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Name of the admin whose token is in `admin_token_file`.
pub(crate) const ADMIN: &str = "admin";

/// Maximum length of a name in bytes.
const LONGEST_NAME: usize = 64;

/// Validated settings of a remote admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// Name in the audit.
    pub name: String,
    /// Permissions.
    pub role: AdminRole,
    /// File with the token.
    pub token_file: PathBuf,
    /// Time from which the token is refused, in seconds since 1970.
    pub expires_at: Option<u64>,
    /// Header in which an authenticating proxy names the user.
    pub user_header: Option<HeaderName>,
}

/// Validates `[admins]`, and adds the admin whose token is in `file`.
pub(super) fn checked_admins(
    file: PathBuf,
    settings: BTreeMap<String, AdminSettings>,
    local: &Path,
) -> Result<Vec<AdminConfig>, ConfigError> {
    let mut admins = vec![AdminConfig {
        name: ADMIN.to_owned(),
        role: AdminRole::All,
        token_file: file,
        expires_at: None,
        user_header: None,
    }];
    for (name, settings) in settings {
        admins.push(checked(name, settings, local)?);
    }
    let mut files = BTreeSet::new();
    match admins.iter().find(|admin| !files.insert(&admin.token_file)) {
        Some(admin) => Err(invalid(
            &admin.name,
            "token_file",
            "another admin has the same file",
        )),
        None => Ok(admins),
    }
}

fn checked(name: String, settings: AdminSettings, local: &Path) -> Result<AdminConfig, ConfigError> {
    let is_file_name = !name.starts_with('.')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte));
    if name == ADMIN || !(1..=LONGEST_NAME).contains(&name.len()) || !is_file_name {
        return Err(invalid(
            &name,
            "name",
            "expected 1 to 64 letters, digits, and -_.@ that do not start with a dot and are not \"admin\"",
        ));
    }
    let expires_at = match &settings.expires {
        None => None,
        Some(date) => match start_of(date) {
            None => return Err(invalid(&name, "expires", "expected a date such as 2027-03-31")),
            start => start,
        },
    };
    let header = settings.user_header.map(|header| match header.parse() {
        Ok(AUTHORIZATION) | Err(_) => Err(invalid(
            &name,
            "user_header",
            "expected the name of a header other than Authorization",
        )),
        Ok(header) => Ok(header),
    });
    Ok(AdminConfig {
        role: settings.role,
        token_file: settings
            .token_file
            .unwrap_or_else(|| local.join("admins").join(&name)),
        expires_at,
        user_header: header.transpose()?,
        name,
    })
}

/// Returns the first second of a date in UTC, in seconds since 1970.
fn start_of(date: &str) -> Option<u64> {
    let date: NaiveDate = date.parse().ok()?;
    u64::try_from(date.and_time(NaiveTime::MIN).and_utc().timestamp()).ok()
}

fn invalid(name: &str, key: &'static str, rule: &'static str) -> ConfigError {
    ConfigError::Admin {
        name: name.to_owned(),
        key,
        rule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostConfig;

    #[test]
    fn admins_have_names_roles_and_dates() {
        let text = "[admins.alice]\nrole = \"tenants\"\nexpires = \"2026-11-26\"\n\
            [admins.sso]\nrole = \"read\"\ntoken_file = \"/etc/sso\"\nuser_header = \"X-User\"";
        let config = HostConfig::from_toml(text).unwrap();
        let live = config.live.get();
        let [admin, alice, sso] = live.admins.as_slice() else {
            panic!("{:?}", live.admins)
        };
        assert_eq!((admin.name.as_str(), admin.role), (ADMIN, AdminRole::All));
        assert_eq!(
            (alice.role, alice.expires_at),
            (AdminRole::Tenants, Some(1_795_651_200))
        );
        assert_eq!(alice.token_file, Path::new("frostline-state/admins/alice"));
        assert_eq!(sso.user_header.as_ref().unwrap(), "x-user");
    }

    #[test]
    fn invalid_admins_are_refused_by_name() {
        for text in [
            "[admins.admin]\nrole = \"all\"",
            "[admins.\"a/b\"]\nrole = \"all\"",
            "[admins.\"\"]\nrole = \"all\"",
            "[admins.\"..\"]\nrole = \"all\"",
            "[admins.a]\nrole = \"all\"\nexpires = \"soon\"",
            "[admins.a]\nrole = \"all\"\nuser_header = \"authorization\"",
            "[admins.a]\nrole = \"all\"\nuser_header = \"two words\"",
            "[admins.a]\nrole = \"all\"\ntoken_file = \"t\"\n[admins.b]\nrole = \"all\"\ntoken_file = \"t\"",
        ] {
            let error = HostConfig::from_toml(text).unwrap_err();
            assert!(matches!(error, ConfigError::Admin { .. }), "{text}: {error}");
        }
        assert!(HostConfig::from_toml("[admins.a]\nrole = \"root\"").is_err());
    }
}
