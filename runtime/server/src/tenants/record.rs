//! Records of tenants in the shared state.

use super::token::{PresentedToken, StoredToken};
use crate::refusal::Refusal;
use frostline_state::Unknown;
use frostline_wire::Quota;
use serde::{Deserialize, Serialize};

/// Maximum number of tokens per tenant. A tenant can use a token per program and rotate them independently.
pub(crate) const MAX_TOKENS: usize = 32;

/// A tenant as stored in the shared state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TenantRecord {
    /// Seconds since 1970.
    pub(crate) created_at: u64,
    /// True if all requests of the tenant are refused.
    pub(crate) disabled: bool,
    /// Data roots the tenant can read, including everything below them.
    pub(crate) data: Vec<String>,
    pub(crate) tokens: Vec<StoredToken>,
    /// Set if the tenant was removed: the time until which it can be restored, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept_until: Option<u64>,
    /// Limits set by an admin, which override the host's defaults.
    #[serde(default)]
    pub(crate) quota: StoredQuota,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// A quota as stored in the shared state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Unknown", into = "Unknown")]
pub(crate) struct StoredQuota {
    pub(crate) values: Quota,
    /// Keys written by a newer version, which this one keeps but does not enforce.
    unknown: Unknown,
}

impl From<Unknown> for StoredQuota {
    fn from(stored: Unknown) -> Self {
        let mut quota = Self::default();
        for (key, value) in stored {
            match (key.parse(), value.as_u64()) {
                (Ok(key), Some(value)) => _ = quota.values.insert(key, value),
                _ => _ = quota.unknown.insert(key, value),
            }
        }
        quota
    }
}

impl From<StoredQuota> for Unknown {
    fn from(quota: StoredQuota) -> Self {
        let known = quota.values.into_iter();
        let known = known.map(|(key, value)| (key.to_string(), value.into()));
        known.chain(quota.unknown).collect()
    }
}

/// Reason a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Unknown token or tenant. The answer does not reveal which.
    Unknown,
    /// The token expired at this time (seconds since 1970).
    Expired(u64),
    Disabled,
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown => Self::Unauthorized,
            Denied::Expired(at) => Self::Expired { at },
            Denied::Disabled => Self::Disabled,
        }
    }
}

impl TenantRecord {
    /// Creates a tenant record with one token.
    pub(crate) fn new(data: Vec<String>, token: StoredToken) -> Self {
        Self {
            created_at: token.created_at,
            data,
            tokens: vec![token],
            ..Self::configured()
        }
    }

    /// Creates an empty record for the configured tenant. This record only stores the disabled flag and
    /// revoked tokens of token files.
    pub(crate) fn configured() -> Self {
        Self {
            created_at: 0,
            disabled: false,
            data: Vec::new(),
            tokens: Vec::new(),
            kept_until: None,
            quota: StoredQuota::default(),
            unknown: Unknown::new(),
        }
    }

    /// Returns the lifetime of the newest token in seconds, or `None` if it does not expire.
    pub(crate) fn lifetime(&self) -> Option<u64> {
        let newest = self.tokens.last()?;
        newest.expires_at.map(|at| at.saturating_sub(newest.created_at))
    }

    /// Returns when the last token expires, in seconds since 1970. Returns `None` if a token does not expire, or
    /// if the tenant cannot use any token.
    pub(crate) fn expires_at(&self) -> Option<u64> {
        if self.disabled || self.kept_until.is_some() {
            return None;
        }
        let all: Option<Vec<u64>> = self.tokens.iter().map(|token| token.expires_at).collect();
        all?.into_iter().max()
    }

    /// Checks a presented token. Only a caller with the right secret learns that the token has expired or
    /// that the tenant is disabled.
    ///
    /// # Errors
    /// Returns [`Denied`] if the token does not admit the caller.
    pub(crate) fn admit(&self, shown: &PresentedToken<'_>, now: u64) -> Result<(), Denied> {
        let token = self.tokens.iter().find(|token| token.id == shown.id);
        self.check_token(token.filter(|token| token.matches(shown)), now)
    }

    /// Checks that a request admitted by the token with this id can continue.
    ///
    /// # Errors
    /// Returns [`Denied`] if the token was revoked or has expired, or if the tenant is disabled.
    pub(crate) fn check_valid(&self, id: &str, now: u64) -> Result<(), Denied> {
        self.check_token(self.tokens.iter().find(|token| token.id == id), now)
    }

    fn check_token(&self, token: Option<&StoredToken>, now: u64) -> Result<(), Denied> {
        let token = token.ok_or(Denied::Unknown)?;
        match token.expires_at {
            _ if self.kept_until.is_some() => Err(Denied::Unknown),
            Some(at) if token.has_expired(now) => Err(Denied::Expired(at)),
            _ if self.disabled => Err(Denied::Disabled),
            _ => Ok(()),
        }
    }

    /// Adds a token. If `others_until` is set, the existing tokens expire at that time or earlier, so that their
    /// holders have time to switch. Expired tokens stay until they are revoked, because the clock of this host may
    /// be wrong.
    pub(crate) fn rotate(&mut self, issued: StoredToken, others_until: Option<u64>) {
        if let Some(until) = others_until {
            for token in &mut self.tokens {
                token.expires_at = Some(token.expires_at.map_or(until, |at| at.min(until)));
            }
        }
        self.tokens.push(issued);
    }

    /// Removes expired tokens. `now` must be confirmed by a second clock.
    pub(crate) fn forget_expired(&mut self, now: u64) {
        self.tokens.retain(|token| !token.has_expired(now));
    }

    /// Removes a token; returns false if the tenant has no token with this id.
    pub(crate) fn revoke(&mut self, id: &str) -> bool {
        let before = self.tokens.len();
        self.tokens.retain(|token| token.id != id);
        self.tokens.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::IssuedToken;
    use super::*;

    fn admit(record: &TenantRecord, text: &str, now: u64) -> Result<(), Denied> {
        record.admit(&PresentedToken::parse(text).unwrap(), now)
    }

    #[test]
    fn old_tokens_live_on_for_a_while_when_a_new_one_is_made() {
        let old = IssuedToken::issue("a", 0, None).unwrap();
        let new = IssuedToken::issue("a", 10, None).unwrap();
        let mut record = TenantRecord::new(Vec::new(), old.stored);
        record.rotate(new.stored, Some(20));
        for text in [&old.text, &new.text] {
            assert_eq!(admit(&record, text, 19), Ok(()));
        }
        assert_eq!(admit(&record, &old.text, 20), Err(Denied::Expired(20)));
        assert_eq!(admit(&record, &new.text, 20), Ok(()));
        record.rotate(IssuedToken::issue("a", 30, None).unwrap().stored, None);
        assert_eq!(
            admit(&record, &old.text, 30),
            Err(Denied::Expired(20)),
            "it is kept"
        );
        record.forget_expired(30);
        assert_eq!(admit(&record, &old.text, 30), Err(Denied::Unknown));
        assert_eq!(admit(&record, &new.text, 30), Ok(()));
    }

    #[test]
    fn who_was_let_in_stays_as_long_as_they_would_be_let_in() {
        let issued = IssuedToken::issue("a", 0, Some(5)).unwrap();
        let id = issued.stored.id.clone();
        let mut record = TenantRecord::new(Vec::new(), issued.stored);
        assert_eq!(record.check_valid(&id, 4), Ok(()));
        assert_eq!(record.check_valid(&id, 5), Err(Denied::Expired(5)));
        record.disabled = true;
        assert_eq!(record.check_valid(&id, 4), Err(Denied::Disabled));
        record.kept_until = Some(10);
        assert_eq!(record.check_valid(&id, 4), Err(Denied::Unknown), "it was removed");
        record.kept_until = None;
        assert!(record.revoke(&id));
        assert_eq!(record.check_valid(&id, 4), Err(Denied::Unknown));
    }

    #[test]
    fn a_tenant_ends_with_its_last_token() {
        let token = |expires_at| IssuedToken::issue("a", 0, expires_at).unwrap().stored;
        let mut record = TenantRecord::new(Vec::new(), token(Some(5)));
        record.rotate(token(Some(9)), None);
        assert_eq!(record.expires_at(), Some(9));
        record.disabled = true;
        assert_eq!(record.expires_at(), None);
        record.disabled = false;
        record.rotate(token(None), None);
        assert_eq!(record.expires_at(), None);
    }

    #[test]
    fn rotation_never_lets_a_token_live_longer() {
        let old = IssuedToken::issue("a", 0, Some(15)).unwrap();
        let mut record = TenantRecord::new(Vec::new(), old.stored);
        record.rotate(IssuedToken::issue("a", 10, None).unwrap().stored, Some(100));
        assert_eq!(admit(&record, &old.text, 15), Err(Denied::Expired(15)));
    }

    #[test]
    fn who_has_no_secret_learns_nothing() {
        let issued = IssuedToken::issue("a", 0, Some(5)).unwrap();
        let mut record = TenantRecord::new(Vec::new(), issued.stored.clone());
        record.disabled = true;
        let forged = issued.text[..issued.text.len() - 64].to_owned() + &"0".repeat(64);
        assert_eq!(admit(&record, &forged, 0), Err(Denied::Unknown));
        assert_eq!(admit(&record, &issued.text, 0), Err(Denied::Disabled));
        assert_eq!(admit(&record, &issued.text, 5), Err(Denied::Expired(5)));
        assert!(record.revoke(&issued.stored.id) && !record.revoke(&issued.stored.id));
        assert_eq!(admit(&record, &issued.text, 0), Err(Denied::Unknown));
    }
}
