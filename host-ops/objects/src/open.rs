//! From a URL to a store.

use crate::ObjectError;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
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
    /// Whether credentials were given, where some are needed.
    pub(crate) credentials: bool,
}

/// How a page of keys is found.
#[derive(Debug, Clone)]
pub(crate) enum Listing {
    /// By walking the folder (canonical) in the order of keys.
    Folder(PathBuf),
    /// By asking S3 for a page.
    Pages(Arc<AmazonS3>),
    /// By reading the store's listing, which is in order.
    Ordered,
}

/// Opens a path, `file://`, `memory://` or `s3://bucket/prefix`; S3's settings are among `variables`.
pub(crate) fn open(
    root: &str,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Opened, ObjectError> {
    if !root.contains("://") {
        let folder = std::path::absolute(root).map_err(|error| refused(root, &error.to_string()))?;
        return local(root, folder);
    }
    let url = Url::parse(root).map_err(|error| refused(root, &error.to_string()))?;
    match url.scheme() {
        "file" => local(
            root,
            url.to_file_path()
                .map_err(|()| refused(root, "it names no absolute path"))?,
        ),
        "memory" => Ok(Opened {
            store: Arc::new(InMemory::new()),
            listing: Listing::Ordered,
            prefix: prefix(root, &url)?,
            credentials: true,
        }),
        "s3" | "s3a" => s3(root, &url, variables),
        scheme => Err(refused(
            root,
            &format!("'{scheme}://' is not supported; use a path, file:// or s3://"),
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
    let host = host
        .rsplit_once('@')
        .map_or_else(|| host.to_owned(), |(_, host)| format!("..@{host}"));
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    format!("{scheme}://{host}{path}{query}")
}

fn refused(root: &str, reason: &str) -> ObjectError {
    ObjectError::Root {
        root: shown(root),
        reason: reason.to_owned(),
    }
}

fn local(root: &str, folder: PathBuf) -> Result<Opened, ObjectError> {
    let folder = folder.canonicalize().map_err(|_| ObjectError::NoSuchRoot {
        root: root.to_owned(),
    })?;
    if !folder.is_dir() {
        return Err(refused(
            root,
            "it is a file; name the folder that holds the images",
        ));
    }
    // What is written here are guests, models and state: few and worth a sync to disk.
    let store =
        LocalFileSystem::new_with_prefix(&folder).map_err(|error| refused(root, &error.to_string()))?;
    let store = Arc::new(store.with_fsync(true));
    Ok(Opened {
        store,
        listing: Listing::Folder(folder),
        prefix: Path::default(),
        credentials: true,
    })
}

fn prefix(root: &str, url: &Url) -> Result<Path, ObjectError> {
    Path::from_url_path(url.path()).map_err(|error| refused(root, &error.to_string()))
}

/// S3 with credentials, region and endpoint from the usual variables.
fn s3(
    root: &str,
    url: &Url,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Opened, ObjectError> {
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        let reason =
            "write s3://bucket/prefix; credentials belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        return Err(refused(root, reason));
    }
    let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
    let bucket = bucket.ok_or_else(|| refused(root, "it names no bucket; write s3://bucket/prefix"))?;
    let builder = AmazonS3Builder::new()
        .with_client_options(client())
        .with_retry(retry());
    let builder = with_variables(builder, variables).with_bucket_name(bucket);
    let credentials = has_credentials(&builder);
    let builder = with_endpoint_checked(root, builder)?;
    let store = builder
        .build()
        .map_err(|error| refused(root, &error.to_string()))?;
    let store = Arc::new(store);
    Ok(Opened {
        store: Arc::clone(&store) as _,
        listing: Listing::Pages(store),
        prefix: prefix(root, url)?,
        credentials,
    })
}

/// Applies the variables that `object_store` knows (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `AWS_REGION`, ..).
fn with_variables(
    builder: AmazonS3Builder,
    variables: impl IntoIterator<Item = (String, String)>,
) -> AmazonS3Builder {
    let known = variables.into_iter().filter_map(|(name, value)| {
        let key: AmazonS3ConfigKey = name
            .starts_with("AWS_")
            .then(|| name.to_ascii_lowercase().parse().ok())??;
        Some((key, value))
    });
    known.fold(builder, |builder, (key, value)| builder.with_config(key, value))
}

fn has_credentials(builder: &AmazonS3Builder) -> bool {
    let skipped = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature);
    let sources = [
        AmazonS3ConfigKey::AccessKeyId,
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ];
    skipped.is_some_and(|value| value == "true")
        || sources
            .iter()
            .any(|source| builder.get_config_value(source).is_some())
}

/// Plain HTTP is allowed to an endpoint on this machine, and elsewhere where `AWS_ALLOW_HTTP` says so.
fn with_endpoint_checked(root: &str, builder: AmazonS3Builder) -> Result<AmazonS3Builder, ObjectError> {
    use object_store::ClientConfigKey::AllowHttp;
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let Some(endpoint) = endpoint else {
        return Ok(builder);
    };
    let url = Url::parse(&endpoint)
        .map_err(|error| refused(root, &format!("AWS_ENDPOINT_URL is no URL: {error}")))?;
    if url.scheme() != "http" {
        return Ok(builder);
    }
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let allowed = builder.get_config_value(&AmazonS3ConfigKey::Client(AllowHttp));
    if here {
        Ok(builder.with_allow_http(true))
    } else if allowed.is_some_and(|value| value == "true" || value == "1") {
        Ok(builder)
    } else {
        let reason = "AWS_ENDPOINT_URL is plain http:// to another machine; use https://, or set AWS_ALLOW_HTTP=true on a network you trust";
        Err(refused(root, reason))
    }
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
mod tests {
    use super::*;

    fn with(root: &str, variables: &[(&str, &str)]) -> Result<Opened, ObjectError> {
        open(
            root,
            variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for root in [
            "s3://id:geheim@photos/x",
            "s3://photos/x?X-Amz-Signature=geheim",
            "ftp://id:geheim@host/x?geheim",
        ] {
            let error = with(root, &[]).map(drop).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
        assert_eq!(shown("s3://photos/a@b/c"), "s3://photos/a@b/c");
        assert_eq!(shown("s3://id:key@photos"), "s3://..@photos");
        assert_eq!(shown("/data/a?b"), "/data/a?b");
    }

    #[test]
    fn plain_http_stays_on_this_machine_unless_allowed() {
        let far = ("AWS_ENDPOINT_URL", "http://store.example:9000");
        assert!(matches!(
            with("s3://photos", &[far]),
            Err(ObjectError::Root { .. })
        ));
        assert!(with("s3://photos", &[far, ("AWS_ALLOW_HTTP", "true")]).is_ok());
        assert!(with("s3://photos", &[("AWS_ENDPOINT_URL", "https://store.example")]).is_ok());
        for near in [
            "http://127.0.0.1:9000",
            "http://localhost:9000",
            "http://[::1]:9000",
        ] {
            assert!(
                with("s3://photos", &[("AWS_ENDPOINT_URL", near)]).is_ok(),
                "{near}"
            );
        }
    }

    #[test]
    fn what_gives_credentials_is_known() {
        assert!(!with("s3://photos", &[]).unwrap().credentials);
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key")];
        assert!(with("s3://photos", &keys).unwrap().credentials);
        assert!(
            with("s3://photos", &[("AWS_SKIP_SIGNATURE", "true")])
                .unwrap()
                .credentials
        );
    }
}
