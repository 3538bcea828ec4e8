//! Token files for the configured tenant and for remote admins. A missing file is created. Memory only
//! contains hashes of the tokens.

use frostline_sealed::whole_file;
use frostline_tensor::Cause;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Number of random bytes per token. 256 bits cannot be guessed, even without rate limits.
const TOKEN_BYTES: usize = 32;

/// Minimum token length in characters: 128 bits in hexadecimal.
const MIN_TOKEN_LENGTH: usize = 32;

/// Error when loading or creating a token file.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Reading or creating the file failed.
    #[error("cannot use the token file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file does not contain a token.
    #[error("invalid token file {}: {reason}; delete the file to have a new token created at the next start", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong. The content is never included.
        reason: &'static str,
    },
    /// The system returned no random bytes.
    #[error("cannot generate a token: {detail}")]
    Random {
        /// The system's message.
        #[source]
        detail: Cause,
    },
}

impl TokenError {
    fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// SHA-256 of a valid token.
#[derive(Clone, PartialEq)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// Reads the token in `path`. If the file is missing, creates it atomically with a new token and access
    /// for the owner only.
    pub(crate) fn read_or_create(path: &Path) -> Result<Self, TokenError> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                create(path)?;
                std::fs::read_to_string(path)
            }
            text => text,
        };
        let text = text.map_err(|source| TokenError::file(path, source))?;
        let token = text.trim();
        let reason = if token.len() < MIN_TOKEN_LENGTH {
            "the token is shorter than 32 characters"
        } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            "the token must be one line of printable ASCII without spaces"
        } else {
            return Ok(Self::hash(token));
        };
        Err(TokenError::Content {
            path: path.to_owned(),
            reason,
        })
    }

    /// Returns the hash in hexadecimal.
    pub(crate) fn hex(&self) -> String {
        hex::encode(self.0)
    }

    fn hash(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Returns true if `token` has this hash. Takes constant time.
    pub(crate) fn matches(&self, token: &str) -> bool {
        Self::hash(token).0.ct_eq(&self.0).into()
    }
}

/// Valid token for the configured tenant or remote admins. It is reloaded when the file changes.
pub(crate) struct TokenFile {
    file: PathBuf,
    current: RwLock<TokenHash>,
}

impl TokenFile {
    /// Reads the token in `file`, or creates the file with a new token.
    pub(crate) fn read_or_create(file: PathBuf) -> Result<Self, TokenError> {
        let current = RwLock::new(TokenHash::read_or_create(&file)?);
        if exposed_to_others(&file) {
            let file = file.display();
            tracing::warn!(%file, "other users can read the token; run chmod o-rwx on the file and replace the token");
        }
        Ok(Self { file, current })
    }

    /// Reads the file again, or creates a missing file with a new token. Returns true if the token has
    /// changed.
    pub(crate) fn refresh(&self) -> Result<bool, TokenError> {
        let read = TokenHash::read_or_create(&self.file)?;
        let mut current = self.current.write();
        let changed = *current != read;
        *current = read;
        Ok(changed)
    }

    /// Returns the hash of `token` if it is valid. Takes constant time.
    pub(crate) fn admit(&self, token: &str) -> Option<TokenHash> {
        let current = self.current.read();
        current.matches(token).then(|| current.clone())
    }

    /// Returns the hash of the valid token.
    pub(crate) fn current(&self) -> TokenHash {
        self.current.read().clone()
    }

    /// Returns true if the admitted token is still valid.
    pub(crate) fn is_current(&self, admitted: &TokenHash) -> bool {
        *self.current.read() == *admitted
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }
}

/// Returns true if users other than the owner and the group can read or write the file.
pub(crate) fn exposed_to_others(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0)
}

fn create(path: &Path) -> Result<(), TokenError> {
    let mut random = [0_u8; TOKEN_BYTES];
    getrandom::fill(&mut random).map_err(|error| TokenError::Random { detail: error.into() })?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder).map_err(|source| TokenError::file(path, source))?;
    let text = format!("{}\n", hex::encode(random));
    let written = whole_file::write_new_private(path, text.as_bytes());
    written.map(drop).map_err(|source| TokenError::file(path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_token_is_private_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/token");
        let hash = TokenHash::read_or_create(&path).unwrap();
        let token = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(token.trim().len(), 64);
        assert!(hash.matches(token.trim()));
        assert!(!hash.matches("") && !hash.matches(&token.trim()[1..]));
        assert!(TokenHash::read_or_create(&path).unwrap().matches(token.trim()));
    }

    #[test]
    fn removing_the_file_revokes_the_admin_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin-token");
        let token = TokenFile::read_or_create(path.clone()).unwrap();
        let old = std::fs::read_to_string(&path).unwrap();
        assert!(token.admit(old.trim()).is_some() && !token.refresh().unwrap());
        std::fs::write(&path, "short").unwrap();
        assert!(token.refresh().is_err());
        let admitted = token.admit(old.trim()).unwrap();
        assert!(token.is_current(&admitted));
        std::fs::remove_file(&path).unwrap();
        assert!(token.refresh().unwrap());
        assert!(token.admit(old.trim()).is_none() && !token.is_current(&admitted));
        assert!(
            token
                .admit(std::fs::read_to_string(&path).unwrap().trim())
                .is_some()
        );
    }

    #[test]
    fn an_invalid_token_file_is_refused_without_showing_its_content() {
        let folder = tempfile::tempdir().unwrap();
        for content in [
            "",
            "secret-but-short",
            "two lines of it\nare not one token at all, are they",
        ] {
            let path = folder.path().join("token");
            std::fs::write(&path, content).unwrap();
            let error = TokenHash::read_or_create(&path).map(|_| ()).unwrap_err();
            assert!(matches!(error, TokenError::Content { .. }));
            assert!(content.is_empty() || !error.to_string().contains(content));
        }
    }
}
