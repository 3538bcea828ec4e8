//! Credentials of one store's own: keys in a file, which may change, and a role that they may take on.

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

/// How an S3 store is opened that has settings of its own.
#[derive(Debug, Clone, Default)]
pub struct OwnStore {
    /// The bucket, where it is not called as in the root's address.
    pub bucket: Option<String>,
    /// What stands in place of the environment's variables.
    pub variables: Variables,
    /// Where its keys are.
    pub keys: Option<KeysFile>,
    /// What its requests are made as.
    pub role: Option<Role>,
}

/// A file with keys, of the form of `~/.aws/credentials`.
#[derive(Debug, Clone)]
pub struct KeysFile {
    /// The file.
    pub path: PathBuf,
    /// Whose keys in it.
    pub profile: String,
}

/// A role to take on.
#[derive(Debug, Clone)]
pub struct Role {
    /// Its ARN.
    pub arn: String,
    /// What the role's owner asks for besides.
    pub external_id: Option<String>,
    /// The token service; `None` for Amazon's in the store's region.
    pub sts: Option<String>,
}

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How long a role is taken on for, and how long before its end again. An hour is the most that a role may give to another role.
const SESSION: Duration = Duration::from_secs(3600);
const BEFORE_ITS_END: Duration = Duration::from_secs(600);

/// The largest answer of a token service that is read; they have some 2 KB.
const LARGEST_ANSWER: usize = 64 << 10;

/// Keys from a file, read again when it changes.
pub(super) struct FileKeys {
    file: KeysFile,
    state: Mutex<FileState>,
}

struct FileState {
    looked: Instant,
    stamp: Option<Stamp>,
    keys: Arc<AwsCredential>,
}

/// What changes when a file is written or replaced.
type Stamp = (u64, u64, i64, i64);

impl FileKeys {
    /// # Errors
    /// [`ObjectError::Root`] for a file without the keys.
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
                        tracing::warn!(%file, %error, "cannot reload the keys of a store; keeping the current ones");
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

/// Keys of a role, which those of `base` take on for an hour at a time.
pub(super) struct AssumedRole {
    pub(super) role: Role,
    pub(super) region: String,
    pub(super) client: HttpClient,
    pub(super) base: AwsCredentialProvider,
    pub(super) session: tokio::sync::Mutex<Option<Session>>,
}

pub(super) struct Session {
    until: Instant,
    /// As whom the role was taken on.
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
            // Its body repeats the request.
            return Err(failed(format!("status code: {status}")));
        }
        let body = answer.into_body().bytes().await.map_err(failed)?;
        let keys = (body.len() <= LARGEST_ANSWER).then(|| keys_of(&body)).flatten();
        keys.ok_or_else(|| failed("its answer has no keys"))
    }
}

/// As `object_store` tells of whoever gives tokens.
fn failed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let source = format!("Error performing token request: {}", why.into()).into();
    Error::Generic { store: "S3", source }
}

/// The keys in an answer of a token service.
fn keys_of(body: &[u8]) -> Option<AwsCredential> {
    let (mut id, mut secret, mut token) = (None, None, None);
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
