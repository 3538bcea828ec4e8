use crate::ClientError;
use frostline_tensor::Cause;
use http::HeaderValue;
use std::path::Path;

/// A bearer token. It is sent to the host and shown nowhere: neither `Debug` nor any error reveals it.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// A token as the host's owner handed it out; white space around it is dropped.
    ///
    /// # Errors
    /// [`ClientError::Token`] when it is empty or holds characters that no HTTP header may.
    pub fn new(secret: &str) -> Result<Self, ClientError> {
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
        Ok(Self(value))
    }

    /// Reads the token from a file.
    ///
    /// # Errors
    /// [`ClientError::Token`] naming the file.
    pub fn read(path: &Path) -> Result<Self, ClientError> {
        let text = std::fs::read_to_string(path).map_err(|error| ClientError::Token {
            reason: Cause::explained(path.display().to_string(), error),
        })?;
        Self::new(&text)
    }

    /// The value of an `Authorization` header, marked as sensitive.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
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
