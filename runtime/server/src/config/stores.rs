//! Stores behind data roots, with individual settings for buckets.

use super::error::ConfigError;
use super::settings::{HostSettings, StoreSettings};
use frostline_objects::{KeysFile, ObjectError, OwnStore, Role, Store};
use std::collections::BTreeMap;
use std::ffi::OsString;
use url::Url;

/// Placeholder for the tenant's name in a role.
const TENANT_PLACEHOLDER: &str = "{tenant}";

/// Environment variables with credentials, which remain valid for stores without a keys file.
const CREDENTIAL_VARIABLES: [&str; 12] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
];

/// Settings by bucket name.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    by_bucket: BTreeMap<String, StoreSettings>,
}

impl Stores {
    /// Reads the stores from a configuration file, for use by the operator.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the invalid key.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::checked(HostSettings::from_toml(text)?.store)
    }

    pub(super) fn checked(settings: BTreeMap<String, StoreSettings>) -> Result<Self, ConfigError> {
        for (name, store) in &settings {
            store.check().map_err(|(key, rule)| ConfigError::Store {
                name: name.clone(),
                key: key.to_owned(),
                rule: rule.to_owned(),
            })?;
        }
        Ok(Self { by_bucket: settings })
    }

    /// Opens a root for a tenant.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Store::open`].
    pub(crate) fn open(&self, root: &str, tenant: &str) -> Result<Store, ObjectError> {
        open_store(root, self.settings(root), tenant)
    }

    /// Returns true if the root is opened separately for each tenant.
    pub(crate) fn is_by_tenant(&self, root: &str) -> bool {
        self.settings(root).is_some_and(|settings| {
            let texts = [&settings.role, &settings.external_id];
            texts
                .into_iter()
                .flatten()
                .any(|text| text.contains(TENANT_PLACEHOLDER))
        })
    }

    /// Returns the settings that apply to a root, if any.
    pub(crate) fn settings(&self, root: &str) -> Option<&StoreSettings> {
        self.by_bucket.get(bucket(root)?)
    }
}

/// Opens a root for a tenant with the settings of its bucket, if it has any.
///
/// # Errors
///
/// Returns the error of [`Store::open`].
pub(crate) fn open_store(
    root: &str,
    settings: Option<&StoreSettings>,
    tenant: &str,
) -> Result<Store, ObjectError> {
    match settings {
        Some(settings) => Store::open_own(root, &settings.for_tenant(tenant, std::env::vars_os())),
        None => Store::open(root),
    }
}

/// Returns the bucket in an S3 URL.
fn bucket(root: &str) -> Option<&str> {
    let rest = root
        .strip_prefix("s3://")
        .or_else(|| root.strip_prefix("s3a://"))?;
    rest.split('/').next()
}

impl StoreSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns the invalid key and the rule.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let urls = [
            ("endpoint", &self.endpoint),
            ("sts", &self.sts),
            ("proxy", &self.proxy),
        ];
        for (key, url) in urls {
            let url = url.as_deref().and_then(|url| Url::parse(url).ok());
            if url.is_some_and(|url| !url.username().is_empty() || url.password().is_some()) {
                return Err((
                    key,
                    "credentials are not allowed in this URL; set those of a proxy with HTTPS_PROXY",
                ));
            }
        }
        if self.role.is_none() && (self.external_id.is_some() || self.sts.is_some()) {
            return Err(("external_id", "external_id and sts require a role"));
        }
        if self.keys.is_none() && self.profile.is_some() {
            return Err(("profile", "a profile requires keys"));
        }
        if self.unsigned && (self.keys.is_some() || self.role.is_some()) {
            return Err(("unsigned", "unsigned requests cannot use keys or a role"));
        }
        Ok(())
    }

    /// Returns the settings to open the store for a tenant, with the variables of `environment` that remain
    /// valid.
    fn for_tenant(&self, tenant: &str, environment: impl Iterator<Item = (OsString, OsString)>) -> OwnStore {
        let stays = |name: &str| {
            !name.starts_with("AWS_") || (self.keys.is_none() && CREDENTIAL_VARIABLES.contains(&name))
        };
        let mut variables: BTreeMap<String, String> = environment
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| stays(name))
            .collect();
        let set = [
            ("AWS_ENDPOINT_URL", self.endpoint.clone()),
            ("AWS_REGION", self.region.clone()),
            (
                "AWS_CA_BUNDLE",
                self.ca.as_ref().and_then(|path| path.to_str().map(str::to_owned)),
            ),
            ("AWS_PROXY_URL", self.proxy.clone()),
            ("AWS_REQUEST_PAYER", switch(self.requester_pays)),
            ("AWS_SKIP_SIGNATURE", switch(self.unsigned)),
            ("AWS_ALLOW_HTTP", switch(self.plain_http)),
            ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", switch(self.virtual_host)),
        ];
        let set = set
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        variables.extend(set);
        OwnStore {
            bucket: self.bucket.clone(),
            variables,
            keys: self.keys.as_ref().map(|path| KeysFile {
                path: path.clone(),
                profile: self.profile.clone().unwrap_or_else(|| "default".to_owned()),
            }),
            role: self.role.as_ref().map(|role| Role {
                arn: role.replace(TENANT_PLACEHOLDER, tenant),
                external_id: self
                    .external_id
                    .as_ref()
                    .map(|id| id.replace(TENANT_PLACEHOLDER, tenant)),
                sts: self.sts.clone(),
            }),
        }
    }
}

/// Returns the value of a variable that is only set if it is on.
fn switch(on: bool) -> Option<String> {
    on.then(|| "true".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(text: &str) -> Result<Stores, String> {
        Stores::from_toml(text).map_err(|error| error.to_string())
    }

    #[test]
    fn bucket_settings_replace_environment_variables() {
        let stores = stores(
            "[store.photos]\nregion = \"eu-west-1\"\nkeys = \"/k\"\nvirtual_host = true\n[store.scans]\nrole = \"arn:{tenant}\"\nexternal_id = \"id-{tenant}\"\n",
        )
        .unwrap();
        let environment = || {
            let set = ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "HOME"];
            set.into_iter().map(|name| (name.into(), "set".into()))
        };
        let own = |root: &str| stores.settings(root).unwrap().for_tenant("acme", environment());
        let photos = own("s3://photos/clothing");
        let names: Vec<&str> = photos.variables.keys().map(String::as_str).collect();
        assert_eq!(names, ["AWS_REGION", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "HOME"]);
        assert_eq!(photos.keys.unwrap().profile, "default");
        let scans = own("s3://scans");
        assert!(
            scans.variables.contains_key("AWS_ACCESS_KEY_ID")
                && !scans.variables.contains_key("AWS_ENDPOINT_URL")
        );
        let role = scans.role.unwrap();
        assert_eq!(
            (role.arn.as_str(), role.external_id.as_deref()),
            ("arn:acme", Some("id-acme"))
        );
        assert!(stores.is_by_tenant("s3a://scans/x") && !stores.is_by_tenant("s3://photos/x"));
        assert!(stores.settings("s3://photos2/x").is_none() && stores.settings("/photos").is_none());
    }

    #[test]
    fn conflicting_settings_are_refused_by_name() {
        for wrong in [
            "endpoint = \"https://id:geheim@host\"",
            "proxy = \"http://id:geheim@host\"",
            "external_id = \"x\"",
            "profile = \"x\"",
            "unsigned = true\nkeys = \"/k\"",
        ] {
            let refused = stores(&format!("[store.photos]\n{wrong}")).unwrap_err();
            assert!(
                refused.contains("[store.photos]") && !refused.contains("geheim"),
                "{refused}"
            );
        }
    }
}
