//! From a URL to a store.

use crate::ObjectError;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// An opened root.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// What stands before every key.
    pub(crate) prefix: Path,
    /// The folder, for local files.
    pub(crate) folder: Option<PathBuf>,
}

/// Opens a path, `file://`, `memory://` or `s3://bucket/prefix`.
pub(crate) fn open(root: &str) -> Result<Opened, ObjectError> {
    if !root.contains("://") {
        let folder = std::path::absolute(root).map_err(|error| refused(root, &error.to_string()))?;
        return local(root, folder);
    }
    let url = Url::parse(root).map_err(|error| refused(root, &error.to_string()))?;
    match url.scheme() {
        "file" => local(root, url.to_file_path().map_err(|()| refused(root, "it names no absolute path"))?),
        "memory" => {
            Ok(Opened { store: Arc::new(InMemory::new()), prefix: prefix(root, &url)?, folder: None })
        }
        "s3" | "s3a" => s3(root, &url),
        scheme => Err(refused(root, &format!("'{scheme}://' is not supported; use a path, file:// or s3://"))),
    }
}

fn refused(root: &str, reason: &str) -> ObjectError {
    ObjectError::Root { root: root.to_owned(), reason: reason.to_owned() }
}

fn local(root: &str, folder: PathBuf) -> Result<Opened, ObjectError> {
    let no_such_root = || ObjectError::NoSuchRoot { root: root.to_owned() };
    let folder = folder.canonicalize().map_err(|_| no_such_root())?;
    if !folder.is_dir() {
        return Err(refused(root, "it is a file; name the folder that holds the images"));
    }
    let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| refused(root, &error.to_string()))?;
    Ok(Opened { store: Arc::new(store.with_automatic_cleanup(false)), prefix: Path::default(), folder: Some(folder) })
}

fn prefix(root: &str, url: &Url) -> Result<Path, ObjectError> {
    Path::from_url_path(url.path()).map_err(|error| refused(root, &error.to_string()))
}

/// S3 with credentials, region and endpoint from the usual environment variables.
fn s3(root: &str, url: &Url) -> Result<Opened, ObjectError> {
    let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
    let bucket = bucket.ok_or_else(|| refused(root, "it names no bucket; write s3://bucket/prefix"))?;
    let store = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(client().with_allow_http(plain_http_allowed()))
        .with_retry(retry())
        .build()
        .map_err(|error| refused(root, &error.to_string()))?;
    Ok(Opened { store: Arc::new(store), prefix: prefix(root, url)?, folder: None })
}

/// Plain HTTP only to an endpoint on this machine, or where `AWS_ALLOW_HTTP` says so.
fn plain_http_allowed() -> bool {
    if std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| value == "true" || value == "1") {
        return true;
    }
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|name| std::env::var(name).ok());
    let host = endpoint.and_then(|endpoint| Url::parse(&endpoint).ok()?.host_str().map(str::to_owned));
    host.is_some_and(|host| matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]"))
}

/// 5 s to connect: a store beside the host answers in milliseconds, one across the world in under a second. 30 s for one
/// request: the largest photos take that long only over a link that is no use for training.
fn client() -> ClientOptions {
    ClientOptions::new().with_connect_timeout(Duration::from_secs(5)).with_timeout(Duration::from_secs(30))
}

/// Three repetitions within 20 s ride out a store's hiccup or its 503 SlowDown; whoever asked retries beyond that, knowing
/// more than this layer does.
fn retry() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 3, retry_timeout: Duration::from_secs(20) }
}
