//! Tokens of tenants: `frost_<tenant>_<id>_<secret>`. PresentedToken once, when they are made; hosts keep a hash. Tenant and id say which hash to
//! look at, so that no host searches by anything secret.

use crate::state::Unknown;
use crate::token::TokenHash;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use subtle::ConstantTimeEq;

/// What all tokens begin with, so that scanners for leaked secrets know them.
const MARK: &str = "frost_";

/// Random bytes of a token's id: enough that no tenant has one twice.
const ID_BYTES: usize = 4;

/// Random bytes of its secret: 256 bits cannot be guessed, whatever the rate of tries.
const SECRET_BYTES: usize = 32;

/// A token as its holder shows it. Not for logs: it holds the secret.
pub(crate) struct PresentedToken<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) id: &'a str,
    text: &'a str,
}

/// A token as hosts keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredToken {
    /// Which of the tenant's tokens this is.
    pub(crate) id: String,
    /// SHA-256 of the whole text, in hexadecimal.
    sha256: String,
    /// Seconds since 1970.
    pub(crate) created_at: u64,
    /// Seconds since 1970; `None` for one that does not expire.
    pub(crate) expires_at: Option<u64>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// A issued token: what the tenant gets, and what is kept.
pub(crate) struct IssuedToken {
    pub(crate) text: String,
    pub(crate) stored: StoredToken,
}

impl IssuedToken {
    /// Makes a token for `tenant`.
    ///
    /// # Errors
    /// The system's, when it has no random bytes.
    pub(crate) fn issue(tenant: &str, now: u64, expires_at: Option<u64>) -> Result<Self, getrandom::Error> {
        let mut random = [0_u8; ID_BYTES + SECRET_BYTES];
        getrandom::fill(&mut random)?;
        let (id, secret) = random.split_at(ID_BYTES);
        let (id, mut text) = (hex::encode(id), format!("{MARK}{tenant}_"));
        // Writing to a string does not fail.
        let _ = write!(text, "{id}_{}", hex::encode(secret));
        let stored = StoredToken {
            id,
            sha256: hash(&text),
            created_at: now,
            expires_at,
            unknown: Unknown::new(),
        };
        Ok(Self { text, stored })
    }
}

impl<'a> PresentedToken<'a> {
    /// Takes a token's text apart; `None` for what cannot be one.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (rest, secret) = text.strip_prefix(MARK)?.rsplit_once('_')?;
        let (tenant, id) = rest.rsplit_once('_')?;
        let plain = !tenant.is_empty() && id.len() == 2 * ID_BYTES && secret.len() == 2 * SECRET_BYTES;
        plain.then_some(Self { tenant, id, text })
    }
}

impl StoredToken {
    /// A token that lies in a host's token file. Nobody enters by its record.
    pub(crate) fn in_file(hash: &TokenHash) -> Self {
        let sha256 = hash.hex();
        Self {
            id: sha256.chars().take(2 * ID_BYTES).collect(),
            sha256,
            created_at: 0,
            expires_at: None,
            unknown: Unknown::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn named(self, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            ..self
        }
    }

    /// Whether `shown` is this token, in time that does not depend on it.
    pub(crate) fn is(&self, shown: &PresentedToken<'_>) -> bool {
        hash(shown.text).as_bytes().ct_eq(self.sha256.as_bytes()).into()
    }

    pub(crate) fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_token_is_known_again_and_no_other_is() {
        let [one, other] = [0, 1].map(|_| IssuedToken::issue("acme_eu", 10, Some(20)).unwrap());
        let shown = PresentedToken::parse(&one.text).unwrap();
        assert_eq!((shown.tenant, shown.id), ("acme_eu", one.stored.id.as_str()));
        assert!(one.stored.is(&shown));
        assert!(!other.stored.is(&shown));
        assert!(!one.stored.has_expired(19) && one.stored.has_expired(20));
        assert!(
            !IssuedToken::issue("a", 0, None)
                .unwrap()
                .stored
                .has_expired(u64::MAX)
        );
    }

    #[test]
    fn what_is_kept_does_not_show_the_secret() {
        let issued = IssuedToken::issue("acme", 0, None).unwrap();
        let kept = serde_json::to_string(&issued.stored).unwrap();
        let secret = issued.text.rsplit('_').next().unwrap();
        assert!(!kept.contains(secret) && !format!("{:?}", issued.stored).contains(secret));
    }

    #[test]
    fn what_cannot_be_a_token_is_none() {
        let issued = IssuedToken::issue("acme", 0, None).unwrap().text;
        let short = &issued[..issued.len() - 1];
        for text in [
            "",
            "frost_",
            "frost_acme",
            "acme_1_2",
            short,
            &issued[1..],
            &issued.replace("acme", ""),
        ] {
            assert!(PresentedToken::parse(text).is_none(), "{text}");
        }
    }
}
