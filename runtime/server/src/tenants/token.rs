//! Tokens of tenants: `frost_<tenant>_<id>_<secret>`.
//!
//! A token is only shown when it is issued, and hosts only store the hash. The tenant and the id select the
//! hash to compare, so no lookup depends on the secret.

use crate::token::TokenHash;
use frostline_state::Unknown;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use subtle::ConstantTimeEq;

/// Prefix of all tokens, used by scanners to recognize leaked secrets.
const MARK: &str = "frost_";

/// Random bytes of a token id, which must be unique within a tenant.
const ID_BYTES: usize = 4;

/// Random bytes of the secret, which is too long to guess at any rate of attempts.
const SECRET_BYTES: usize = 32;

/// A token as presented by a client. It contains the secret and must not be logged.
pub(crate) struct PresentedToken<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) id: &'a str,
    text: &'a str,
}

/// A token as stored in the shared state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredToken {
    /// Identifies the token within the tenant.
    pub(crate) id: String,
    /// SHA-256 of the whole token in hexadecimal.
    sha256: String,
    /// Seconds since 1970.
    pub(crate) created_at: u64,
    /// Seconds since 1970; `None` if the token does not expire.
    pub(crate) expires_at: Option<u64>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// A newly issued token: the text for the tenant and the record to store.
pub(crate) struct IssuedToken {
    pub(crate) text: String,
    pub(crate) stored: StoredToken,
}

impl IssuedToken {
    /// Issues a token for `tenant`.
    ///
    /// # Errors
    /// Returns the error of the operating system if no random bytes are available.
    pub(crate) fn issue(tenant: &str, now: u64, expires_at: Option<u64>) -> Result<Self, getrandom::Error> {
        let mut random = [0_u8; ID_BYTES + SECRET_BYTES];
        getrandom::fill(&mut random)?;
        let (id, secret) = random.split_at(ID_BYTES);
        let id = hex::encode(id);
        let mut text = format!("{MARK}{tenant}_");
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
    /// Parses a token; returns `None` if the text cannot be a token.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (rest, secret) = text.strip_prefix(MARK)?.rsplit_once('_')?;
        let (tenant, id) = rest.rsplit_once('_')?;
        let plain = !tenant.is_empty() && id.len() == 2 * ID_BYTES && secret.len() == 2 * SECRET_BYTES;
        plain.then_some(Self { tenant, id, text })
    }
}

impl StoredToken {
    /// Describes the token in a host's token file, so that an admin can list and revoke it. Such a record is
    /// never used to admit a request.
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

    /// Compares with a presented token in constant time.
    pub(crate) fn matches(&self, shown: &PresentedToken<'_>) -> bool {
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
        assert!(one.stored.matches(&shown));
        assert!(!other.stored.matches(&shown));
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
