//! The tenant's token: made on first start, kept in memory only as a hash.

use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Random bytes of a token: 256 bits cannot be guessed, whatever the rate of tries.
const TOKEN_BYTES: usize = 32;

/// Characters a token must at least have: 128 bits in hexadecimal.
const SHORTEST: usize = 32;

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It could not be read or created.
    #[error("token file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Its content is no token.
    #[error("token file {}: {reason}; delete it and a fresh token is made at the next start", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong; never the content.
        reason: &'static str,
    },
    /// The system gave no random bytes.
    #[error("no random bytes for a token: {detail}")]
    Random {
        /// The system's text.
        detail: String,
    },
}

/// The SHA-256 of the one valid token.
#[derive(Clone)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// Reads the token in `path`, or makes one there that only the owner may read. The file appears whole or not at all.
    pub(crate) fn read_or_create(path: &Path) -> Result<Self, TokenError> {
        let file = |source| TokenError::File {
            path: path.to_owned(),
            source,
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                create(path)?;
                std::fs::read_to_string(path).map_err(file)?
            }
            Err(error) => return Err(file(error)),
        };
        let token = text.trim();
        let content = |reason| TokenError::Content {
            path: path.to_owned(),
            reason,
        };
        if token.len() < SHORTEST {
            return Err(content("it is shorter than 32 characters"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(content(
                "it has more than one line, spaces or characters beyond ASCII",
            ));
        }
        Ok(Self::of(token))
    }

    fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Whether `token` is the one, in time that does not depend on it.
    pub(crate) fn matches(&self, token: &str) -> bool {
        Self::of(token).0.ct_eq(&self.0).into()
    }
}

fn create(path: &Path) -> Result<(), TokenError> {
    let file = |source| TokenError::File {
        path: path.to_owned(),
        source,
    };
    let mut random = [0_u8; TOKEN_BYTES];
    getrandom::fill(&mut random).map_err(|error| TokenError::Random {
        detail: error.to_string(),
    })?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder).map_err(file)?;
    let mut written = tempfile::NamedTempFile::new_in(folder).map_err(file)?;
    writeln!(written, "{}", hex::encode(random)).map_err(file)?;
    written.as_file().sync_all().map_err(file)?;
    match written.persist_noclobber(path) {
        Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(file(error.error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_token_is_private_and_stays() {
        use std::os::unix::fs::PermissionsExt;
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
    fn what_is_no_token_is_refused_without_showing_it() {
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
