use crate::ClientError;
use crate::blocking::blocking;
use frostline_primitives::Lock;
use frostline_tensor::Cause;
use http::HeaderValue;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of bytes to read from a token file. HTTP headers are much smaller.
const MAX_FILE: u64 = 64 << 10;
/// Minimum time between two reads of a token file.
const PAUSE: Duration = Duration::from_secs(2);

/// A bearer token. The token is sent to the host and not revealed by `Debug` or any error. If a host refuses
/// a token from a file, the file is read again. This allows replacing the file during a job. Clones share the
/// current token.
#[derive(Clone)]
pub struct Token(Arc<TokenState>);

struct TokenState {
    header: Lock<HeaderValue>,
    file: Option<Watched>,
}

/// File of a token.
struct Watched {
    path: PathBuf,
    /// Last read after a refusal. The lock is held during a read.
    read: tokio::sync::Mutex<Option<Instant>>,
}

impl Token {
    /// Creates a token from the text that the host's operator provided, without surrounding white space.
    ///
    /// # Errors
    /// Returns [`ClientError::Token`] if the text is empty or contains characters that are invalid in an HTTP
    /// header.
    pub fn new(secret: &str) -> Result<Self, ClientError> {
        Ok(Self::from_header(header(secret)?, None))
    }

    /// Reads the token from a file. The file is read again when a host refuses the token.
    ///
    /// # Errors
    /// Returns [`ClientError::Token`] with the name of the file if the file cannot be read or the content is
    /// invalid.
    pub fn read(path: &Path) -> Result<Self, ClientError> {
        let file = Watched {
            path: path.to_owned(),
            read: tokio::sync::Mutex::default(),
        };
        Ok(Self::from_header(from_file(path)?, Some(file)))
    }

    fn from_header(header: HeaderValue, file: Option<Watched>) -> Self {
        Self(Arc::new(TokenState {
            header: Lock::new(header),
            file,
        }))
    }

    /// Returns the value of the `Authorization` header, marked as sensitive.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.header.lock().clone()
    }

    /// Returns true if the token now differs from the one that a host refused. Concurrent refusals share a
    /// single read, and reads are at least two seconds apart. Callers wait for the next read. If the file is
    /// unusable, for example during a replacement, the token does not change.
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

/// Reads the token again. Pipes are skipped, because they provide the token only once.
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
        reason: Cause::with_message(path.display().to_string(), error),
    })?;
    header(&text)
}

fn header(secret: &str) -> Result<HeaderValue, ClientError> {
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(refused("it is empty"));
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))
        .map_err(|_| refused("it contains characters that are invalid in an HTTP header"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn refused(reason: &str) -> ClientError {
    ClientError::Token {
        reason: reason.into(),
    }
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
