use crate::ClientError;
use crate::blocking::blocking;
use frostline_batching::Lock;
use frostline_tensor::Cause;
use http::HeaderValue;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The largest file that is read as a token; no header holds more than a part of it.
const MAX_FILE: u64 = 64 << 10;
/// The least time between two readings of a token's file.
const PAUSE: Duration = Duration::from_secs(2);

/// A bearer token. It is sent to the host and shown nowhere: neither `Debug` nor any error reveals it. One that was read from a file is
/// read again when a host refuses it, so that it may be replaced while a job runs. Clones share what was read last.
#[derive(Clone)]
pub struct Token(Arc<Shared>);

struct Shared {
    header: Lock<HeaderValue>,
    file: Option<Watched>,
}

/// The file that a token came from.
struct Watched {
    path: PathBuf,
    /// When it was read last because a host refused what it held; held by who reads it.
    read: tokio::sync::Mutex<Option<Instant>>,
}

impl Token {
    /// A token as the host's owner handed it out; white space around it is dropped.
    ///
    /// # Errors
    /// [`ClientError::Token`] when it is empty or holds characters that no HTTP header may.
    pub fn new(secret: &str) -> Result<Self, ClientError> {
        Ok(Self::from_header(header(secret)?, None))
    }

    /// Reads the token from a file, which is read again when a host refuses it.
    ///
    /// # Errors
    /// [`ClientError::Token`] naming the file.
    pub fn read(path: &Path) -> Result<Self, ClientError> {
        let file = Watched {
            path: path.to_owned(),
            read: tokio::sync::Mutex::default(),
        };
        Ok(Self::from_header(from_file(path)?, Some(file)))
    }

    fn from_header(header: HeaderValue, file: Option<Watched>) -> Self {
        Self(Arc::new(Shared {
            header: Lock::new(header),
            file,
        }))
    }

    /// The value of an `Authorization` header, marked as sensitive.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.header.lock().clone()
    }

    /// Whether there is another token now than the one a host refused. The file is read at most once for all that are refused at the same
    /// time, and not again within two seconds: who is refused then waits that long. A file that cannot be used (it may just be being
    /// replaced) changes nothing.
    pub(crate) async fn is_renewed(&self, refused: &HeaderValue) -> bool {
        let Some(file) = &self.0.file else {
            return false;
        };
        let since = Instant::now();
        let mut read = file.read.lock().await;
        if self.header() == *refused && read.is_none_or(|read| read < since) {
            if let Some(read) = *read {
                tokio::time::sleep_until(read + PAUSE).await;
            }
            *read = Some(Instant::now());
            let path = file.path.clone();
            let found = blocking("reading of the token", move || again(&path)).await;
            if let Some(header) = found.ok().flatten() {
                *self.0.header.lock() = header;
            }
        }
        self.header() != *refused
    }
}

/// What the file holds now, if it is a token. A pipe, which gives what it has but once, is not opened again.
fn again(path: &Path) -> Option<HeaderValue> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    from_file(path).ok()
}

fn from_file(path: &Path) -> Result<HeaderValue, ClientError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
    read.map_err(|error| ClientError::Token {
        reason: Cause::explained(path.display().to_string(), error),
    })?;
    header(&text)
}

fn header(secret: &str) -> Result<HeaderValue, ClientError> {
    let refused = |reason: &str| ClientError::Token {
        reason: reason.into(),
    };
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(refused("it is empty"));
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))
        .map_err(|_| refused("it holds characters that a header may not"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_shows() {
        let token = Token::new(" s3cret\n").unwrap();
        assert!(!format!("{token:?} {:?}", token.header()).contains("s3cret"));
        assert_eq!(token.header(), HeaderValue::from_static("Bearer s3cret"));
        let error = Token::new("s3cret\u{7f}").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"));
        assert!(Token::new(" ").is_err());
    }
}
