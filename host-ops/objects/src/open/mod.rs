//! From a URL to a store.

mod azure;
mod folder;
mod google;
mod profile;
mod s3;
mod web;

use crate::ObjectError;
use object_store::list::PaginatedListStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::{Host, Url};

/// An opened root.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) listing: Listing,
    /// What stands before every key.
    pub(crate) prefix: Path,
    pub(crate) kind: Kind,
    pub(crate) credentials: Credentials,
}

/// What requests are signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Some were given, or none are needed.
    Given,
    /// Nothing, as the settings ask for.
    Unsigned,
    /// Nothing was given: the machine's own role, if it has one.
    Missing,
}

impl Credentials {
    fn of(unsigned: bool, given: bool) -> Self {
        match (unsigned, given) {
            (true, _) => Self::Unsigned,
            (false, true) => Self::Given,
            (false, false) => Self::Missing,
        }
    }
}

/// How a page of keys is found.
#[derive(Clone)]
pub(crate) enum Listing {
    /// By walking the folder (canonical) in the order of keys.
    Folder(PathBuf),
    /// By asking the store for a page.
    Pages(Arc<dyn PaginatedListStore>),
    /// By reading the store's listing, which is in order.
    Ordered,
    /// By reading all of a web server's listing, which has neither pages nor an order.
    Whole,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder(_) => "Folder",
            Self::Pages(_) => "Pages",
            Self::Ordered => "Ordered",
            Self::Whole => "Whole",
        })
    }
}

/// What a root lies in: where its credentials and its address come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    Memory,
    S3,
    Google,
    Azure,
    Web,
}

impl Kind {
    /// Whether requests travel over a network, where they can stall.
    pub(crate) fn is_remote(self) -> bool {
        !matches!(self, Self::Folder | Self::Memory)
    }

    /// What to look at when a store refuses access.
    pub(crate) fn credentials_advice(self) -> &'static str {
        match self {
            Self::Folder | Self::Memory => "check the permissions of the files",
            Self::S3 => {
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION in the environment of this \
                 process, or the profile that AWS_PROFILE names, and what they are allowed to do"
            }
            Self::Google => {
                "check GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT in the environment of this process, and what \
                 that account is allowed to do"
            }
            Self::Azure => {
                "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN) in the environment \
                 of this process, and what they are allowed to do"
            }
            Self::Web => "a web server is read without credentials; let it serve this host",
        }
    }

    /// How to give credentials where there are none.
    pub(crate) fn missing_credentials_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this process, or a profile in \
                 ~/.aws/credentials, or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            Self::Google => {
                "set GOOGLE_APPLICATION_CREDENTIALS in the environment of this process, or GOOGLE_SKIP_SIGNATURE=true for a \
                 public bucket"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_KEY in the environment of this process, or AZURE_SKIP_SIGNATURE=true for a public \
                 container"
            }
            Self::Folder | Self::Memory | Self::Web => self.credentials_advice(),
        }
    }

    /// How to sign requests where a store does not let everybody in.
    pub(crate) fn unsigned_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "requests are not signed (AWS_SKIP_SIGNATURE=true) and it does not let everybody in; unset it, and set \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this process"
            }
            Self::Google => {
                "requests are not signed (GOOGLE_SKIP_SIGNATURE=true) and it does not let everybody in; unset it, and set \
                 GOOGLE_APPLICATION_CREDENTIALS in the environment of this process"
            }
            Self::Azure => {
                "requests are not signed (AZURE_SKIP_SIGNATURE=true) and it does not let everybody in; unset it, and set \
                 AZURE_STORAGE_ACCOUNT_KEY in the environment of this process"
            }
            Self::Folder | Self::Memory | Self::Web => self.credentials_advice(),
        }
    }

    /// What to look at when there is no such bucket.
    pub(crate) fn bucket_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "check the bucket's name and, where the store is not Amazon's, that AWS_ENDPOINT_URL names it; buckets are never \
                 created here"
            }
            Self::Google => {
                "check the bucket's name and, if it is set, GOOGLE_BASE_URL; buckets are never created here"
            }
            Self::Azure => {
                "check the container's name, AZURE_STORAGE_ACCOUNT_NAME and, if it is set, AZURE_STORAGE_ENDPOINT; containers are \
                 never created here"
            }
            Self::Folder | Self::Memory | Self::Web => "check the address",
        }
    }

    /// What to look at when nothing answers.
    pub(crate) fn address_advice(self) -> &'static str {
        match self {
            Self::S3 => "check that it runs and that AWS_ENDPOINT_URL names it",
            Self::Google => "check the network and, if it is set, GOOGLE_BASE_URL",
            Self::Azure => {
                "check AZURE_STORAGE_ACCOUNT_NAME, the network and, if it is set, AZURE_STORAGE_ENDPOINT"
            }
            Self::Folder | Self::Memory | Self::Web => "check the address",
        }
    }
}

/// Settings by name, as an environment has them.
pub(crate) type Variables = BTreeMap<String, String>;

/// Opens a path or a URL (see [`crate::Store::open`]); the stores' settings are among `variables`.
pub(crate) fn open(root: &str, variables: &Variables) -> Result<Opened, ObjectError> {
    if !root.contains("://") {
        let folder = std::path::absolute(root).map_err(|error| refused(root, &error.to_string()))?;
        return folder::open(root, folder);
    }
    let url = Url::parse(root).map_err(|error| refused(root, &error.to_string()))?;
    match url.scheme() {
        "file" => {
            let folder = url.to_file_path();
            folder::open(
                root,
                folder.map_err(|()| refused(root, "it names no absolute path"))?,
            )
        }
        "memory" => Ok(Opened {
            store: Arc::new(InMemory::new()),
            listing: Listing::Ordered,
            prefix: prefix(root, &url)?,
            kind: Kind::Memory,
            credentials: Credentials::Given,
        }),
        "s3" | "s3a" => s3::open(root, &url, variables),
        "gs" => google::open(root, &url, variables),
        "az" | "abfs" | "abfss" => azure::open(root, &url, variables),
        "http" | "https" => web::open(root, &url, variables),
        scheme => Err(refused(
            root,
            &format!("'{scheme}://' is not supported; use a path, file://, s3://, gs://, az:// or https://"),
        )),
    }
}

/// `root` as messages may show it: without a user, password or query, where people put credentials.
pub(crate) fn shown(root: &str) -> String {
    let Some((scheme, rest)) = root.split_once("://") else {
        return root.to_owned();
    };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?.."));
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = match host.rsplit_once('@') {
        // The part before the '@' is Hadoop's way to write the container.
        Some((container, _)) if scheme.starts_with("abfs") && !container.contains(':') => host.to_owned(),
        Some((_, host)) => format!("..@{host}"),
        None => host.to_owned(),
    };
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    format!("{scheme}://{host}{path}{query}")
}

fn refused(root: &str, reason: &str) -> ObjectError {
    ObjectError::Root {
        root: shown(root),
        reason: reason.to_owned(),
    }
}

fn prefix(root: &str, url: &Url) -> Result<Path, ObjectError> {
    Path::from_url_path(url.path()).map_err(|error| refused(root, &error.to_string()))
}

/// The bucket or container of `scheme://name/prefix`, which has no room for credentials.
fn bucket<'a>(root: &str, url: &'a Url, form: &str, credentials: &str) -> Result<&'a str, ObjectError> {
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(refused(
            root,
            &format!("write {form}; credentials belong in {credentials}"),
        ));
    }
    let name = url.host_str().filter(|name| !name.is_empty());
    name.ok_or_else(|| refused(root, &format!("it names no bucket; write {form}")))
}

/// Those of `variables` that start with `vendor` (such as `AWS_`) and that the vendor's client knows.
fn known<K: std::str::FromStr>(variables: &Variables, vendor: &str) -> Vec<(K, String)> {
    let named = variables.iter().filter(|(name, _)| name.starts_with(vendor));
    named
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.clone())))
        .collect()
}

/// Whether plain HTTP has to be allowed for `endpoint`, which `source` gave: on this machine it is, elsewhere where `permission`
/// is set to say so.
fn plain_http(
    root: &str,
    source: &str,
    endpoint: Option<&str>,
    variables: &Variables,
    permission: &str,
) -> Result<bool, ObjectError> {
    let Some(endpoint) = endpoint else {
        return Ok(false);
    };
    let url = Url::parse(endpoint).map_err(|error| refused(root, &format!("{source} is no URL: {error}")))?;
    if url.scheme() != "http" {
        return Ok(false);
    }
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if here || is_true(variables, permission) {
        return Ok(true);
    }
    let reason = format!(
        "{source} is plain http:// to another machine; use https://, or set {permission}=true on a network you trust"
    );
    Err(refused(root, &reason))
}

fn is_true(variables: &Variables, name: &str) -> bool {
    variables
        .get(name)
        .is_some_and(|value| value == "true" || value == "1")
}

/// 5 s to connect: a store beside the host answers in milliseconds, one across the world in under a second. 30 s for one
/// request: the largest photos take that long only over a link that is no use for training.
fn client() -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(Duration::from_secs(5))
        .with_timeout(Duration::from_secs(30))
}

/// Three repetitions within 20 s ride out a store's hiccup or its 503 SlowDown; whoever asked retries beyond that, knowing
/// more than this layer does.
fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 3,
        retry_timeout: Duration::from_secs(20),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn with(root: &str, variables: &[(&str, &str)]) -> Result<Opened, ObjectError> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        open(root, &variables.collect())
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for root in [
            "s3://id:geheim@photos/x",
            "s3://photos/x?X-Amz-Signature=geheim",
            "gs://geheim@photos/x",
            "az://photos/x?sig=geheim",
            "abfs://photos:geheim@account.dfs.core.windows.net/x",
            "https://id:geheim@web.example/x",
            "https://web.example/x?token=geheim",
            "ftp://id:geheim@host/x?geheim",
        ] {
            let error = with(root, &[]).map(drop).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
        assert_eq!(shown("s3://photos/a@b/c"), "s3://photos/a@b/c");
        assert_eq!(shown("s3://id:key@photos"), "s3://..@photos");
        assert_eq!(shown("abfs://photos@a.example/x"), "abfs://photos@a.example/x");
        assert_eq!(shown("/data/a?b"), "/data/a?b");
    }

    #[test]
    fn plain_http_stays_on_this_machine_unless_allowed() {
        let stores = [
            ("s3://photos", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"),
            ("gs://photos", "GOOGLE_BASE_URL", "GOOGLE_ALLOW_HTTP"),
            ("az://photos", "AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP"),
        ];
        let needed = [
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("GOOGLE_SKIP_SIGNATURE", "true"),
            ("AZURE_SKIP_SIGNATURE", "true"),
        ];
        for (root, endpoint, permission) in stores {
            let opens = |settings: &[(&str, &str)]| with(root, &[&needed, settings].concat());
            let far = (endpoint, "http://store.example:9000");
            let error = opens(&[far]).map(drop).unwrap_err();
            assert!(
                matches!(&error, ObjectError::Root { reason, .. } if reason.contains(permission)),
                "{error}"
            );
            opens(&[far, (permission, "true")]).unwrap();
            opens(&[(endpoint, "https://store.example")]).unwrap();
            for near in ["127.0.0.1", "localhost", "[::1]"] {
                opens(&[(endpoint, &format!("http://{near}:9000/account"))]).unwrap();
            }
        }
    }
}
