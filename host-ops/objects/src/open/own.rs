//! Separate credentials for a store: keys in a file, and a role to assume. The file can change.

use super::address::refused;
use super::profile::{self, ProfileError};
use super::settings::Variables;
use crate::ObjectError;
use async_trait::async_trait;
use http::{Method, Request, StatusCode};
use object_store::aws::{AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use object_store::client::{CredentialProvider, HttpClient, HttpRequestBody};
use object_store::{Error, Result};
use parking_lot::Mutex;
use quick_xml::Reader;
use quick_xml::events::Event;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

/// Settings of a single S3 store.
#[derive(Debug, Clone, Default)]
pub struct OwnStore {
    /// The bucket, if its name differs from that in the root's address.
    pub bucket: Option<String>,
    /// Settings that replace environment variables.
    pub variables: Variables,
    /// File with the keys.
    pub keys: Option<KeysFile>,
    /// Role for requests.
    pub role: Option<Role>,
}

/// File with keys in the `~/.aws/credentials` format.
#[derive(Debug, Clone)]
pub struct KeysFile {
    /// The file.
    pub path: PathBuf,
    /// The profile in the file.
    pub profile: String,
}

/// A role to assume.
#[derive(Debug, Clone)]
pub struct Role {
    /// Amazon resource name of the role.
    pub arn: String,
    /// The external ID that the role requires.
    pub external_id: Option<String>,
    /// The token service; `None` for Amazon's in the store's region.
    pub sts: Option<String>,
}

/// Minimum interval between checks of the file. It is only checked when a request needs the keys.
const LOOK: Duration = Duration::from_secs(1);

/// Session duration of an assumed role. Roles assumed by another role are limited to an hour.
const SESSION: Duration = Duration::from_secs(3600);
/// Remaining session duration that triggers a new session.
const BEFORE_ITS_END: Duration = Duration::from_secs(600);

/// Keys from a file, reloaded when it changes.
pub(super) struct FileKeys {
    file: KeysFile,
    state: Mutex<FileState>,
}

struct FileState {
    looked: Instant,
    stamp: Option<Stamp>,
    keys: Arc<AwsCredential>,
}

/// Inode, size and modification time, which change when a file is written or replaced.
type Stamp = (u64, u64, i64, i64);

impl FileKeys {
    /// Opens a file with keys.
    ///
    /// # Errors
    /// Returns [`ObjectError::Root`] if the file does not contain the keys.
    pub(super) fn open(root: &str, file: &KeysFile) -> Result<Self, ObjectError> {
        let stamp = stamp(file);
        let keys = read(file).map_err(|error| refused(root, error))?;
        Ok(Self {
            file: file.clone(),
            state: Mutex::new(FileState {
                looked: Instant::now(),
                stamp,
                keys: Arc::new(keys),
            }),
        })
    }
}

fn read(file: &KeysFile) -> Result<AwsCredential, ProfileError> {
    let keys = profile::keys_in(&file.path, &file.profile)?;
    Ok(AwsCredential {
        key_id: keys.id,
        secret_key: keys.secret,
        token: keys.token,
    })
}

fn stamp(file: &KeysFile) -> Option<Stamp> {
    let found = std::fs::metadata(&file.path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

#[async_trait]
impl CredentialProvider for FileKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= LOOK {
            state.looked = Instant::now();
            let stamp = stamp(&self.file);
            if stamp != state.stamp {
                state.stamp = stamp;
                let file = self.file.path.display();
                match read(&self.file) {
                    Ok(keys) => {
                        state.keys = Arc::new(keys);
                        tracing::info!(%file, "reloaded the keys of a store");
                    }
                    Err(error) => {
                        tracing::warn!(%file, %error, "cannot reload a store's keys; the current keys remain in use");
                    }
                }
            }
        }
        Ok(Arc::clone(&state.keys))
    }
}

impl fmt::Debug for FileKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileKeys({})", self.file.path.display())
    }
}

/// Keys of an assumed role, renewed with the keys of `base`.
pub(super) struct AssumedRole {
    pub(super) role: Role,
    pub(super) region: String,
    pub(super) client: HttpClient,
    pub(super) base: AwsCredentialProvider,
    pub(super) session: tokio::sync::Mutex<Option<Session>>,
}

pub(super) struct Session {
    until: Instant,
    /// Keys that assumed the role.
    base: Arc<AwsCredential>,
    keys: Arc<AwsCredential>,
}

impl AssumedRole {
    async fn assume(&self, base: &AwsCredential) -> Result<AwsCredential> {
        let address = match &self.role.sts {
            Some(address) => address.clone(),
            None => format!("https://sts.{}.amazonaws.com", self.region),
        };
        let mut url = Url::parse(&address).map_err(failed)?;
        url.query_pairs_mut()
            .append_pair("Action", "AssumeRole")
            .append_pair("Version", "2011-06-15")
            .append_pair("RoleArn", &self.role.arn)
            .append_pair("RoleSessionName", "frostline")
            .append_pair("DurationSeconds", &SESSION.as_secs().to_string())
            .extend_pairs(self.role.external_id.iter().map(|id| ("ExternalId", id)));
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(url.as_str())
            .body(HttpRequestBody::empty())
            .map_err(failed)?;
        AwsAuthorizer::new(base, "sts", &self.region).try_authorize(&mut request, None)?;
        let answer = self.client.execute(request).await.map_err(failed)?;
        let status = answer.status();
        if status != StatusCode::OK {
            // The body repeats the request.
            return Err(failed(format!("status code: {status}")));
        }
        let body = answer.into_body().bytes().await.map_err(failed)?;
        keys_of(&body).ok_or_else(|| failed("the answer contains no keys"))
    }
}

/// Wraps an error in the form in which `object_store` reports those of token services.
fn failed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let source = format!("Error performing token request: {}", why.into()).into();
    Error::Generic { store: "S3", source }
}

/// Returns the keys in an answer of a token service.
fn keys_of(body: &[u8]) -> Option<AwsCredential> {
    let [mut id, mut secret, mut token] = [None, None, None];
    let mut reader = Reader::from_reader(body);
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => {
                let found = match tag.local_name().as_ref() {
                    b"AccessKeyId" => &mut id,
                    b"SecretAccessKey" => &mut secret,
                    b"SessionToken" => &mut token,
                    _ => continue,
                };
                let text = reader.read_text(tag.name()).ok()?;
                *found = Some(String::from_utf8_lossy(&text).trim().to_owned());
            }
            Event::Eof => break,
            _ => {}
        }
    }
    Some(AwsCredential {
        key_id: id?,
        secret_key: secret?,
        token: Some(token?),
    })
}

#[async_trait]
impl CredentialProvider for AssumedRole {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let base = self.base.get_credential().await?;
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref()
            && session.base == base
            && Instant::now() < session.until
        {
            return Ok(Arc::clone(&session.keys));
        }
        let until = Instant::now() + SESSION - BEFORE_ITS_END;
        let keys = Arc::new(self.assume(&base).await?);
        *session = Some(Session {
            until,
            base,
            keys: Arc::clone(&keys),
        });
        Ok(keys)
    }
}

impl fmt::Debug for AssumedRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AssumedRole({})", self.role.arn)
    }
}
