//! Tokens that this host refuses although the state could not be written yet. A file in `local` keeps them across
//! restarts.

use super::token::StoredToken;
use crate::refusal::Refusal;
use frostline_batching::{Charge, run_blocking};
use frostline_sealed::whole_file;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of pending revocations. Each was requested by an admin during one outage of the state.
const MOST: usize = 1024;

/// Deadline to write the file, which has less than 512 KB.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);

/// A revocation that the state may not contain yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Revocation {
    pub(crate) tenant: String,
    /// Id of the token.
    pub(crate) id: String,
    /// The token in the token file, if the tenant is the configured one.
    pub(crate) in_file: Option<StoredToken>,
}

/// See the module documentation.
pub(crate) struct Revocations {
    path: PathBuf,
    pending: RwLock<Vec<Revocation>>,
    /// Held while the file is written.
    saving: tokio::sync::Mutex<()>,
}

impl Revocations {
    /// Reads the revocations of an earlier run.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is invalid.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let pending = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => serde_json::from_slice(&read?)?,
        };
        Ok(Self {
            path,
            pending: RwLock::new(pending),
            saving: tokio::sync::Mutex::default(),
        })
    }

    /// True if the token is revoked.
    pub(crate) fn contains(&self, tenant: &str, id: &str) -> bool {
        let pending = self.pending.read();
        pending
            .iter()
            .any(|revoked| revoked.tenant == tenant && revoked.id == id)
    }

    pub(crate) fn pending(&self) -> Vec<Revocation> {
        self.pending.read().clone()
    }

    /// Revokes a token at once. Returns an error message if a restart would admit it again.
    ///
    /// # Errors
    /// Returns [`Refusal::Request`] if too many revocations are pending.
    pub(crate) async fn add(&self, revocation: Revocation) -> Result<Option<String>, Refusal> {
        self.insert(revocation)?;
        Ok(self.save().await.err())
    }

    fn insert(&self, revocation: Revocation) -> Result<(), Refusal> {
        let mut pending = self.pending.write();
        if pending.contains(&revocation) {
            return Ok(());
        }
        if pending.len() >= MOST {
            return Err(Refusal::request(format!(
                "{MOST} revocations wait for the state, the limit; stop the host until the state is available"
            )));
        }
        pending.push(revocation);
        Ok(())
    }

    /// Removes a revocation that the state contains.
    pub(crate) async fn remove(&self, revocation: &Revocation) {
        self.pending.write().retain(|pending| pending != revocation);
        if let Err(error) = self.save().await {
            tracing::warn!(
                error,
                "cannot update the file of pending revocations, so the next start repeats them"
            );
        }
    }

    async fn save(&self) -> Result<(), String> {
        let _saving = self.saving.lock().await;
        let json = serde_json::to_vec(&*self.pending.read()).map_err(|error| error.to_string())?;
        let path = self.path.clone();
        let written = run_blocking((), WRITE_DEADLINE, Charge::default(), move |_| {
            whole_file::write(&path, |file| file.write_all(&json)).map_err(|error| {
                let path = path.display();
                format!("cannot write {path}: {error}")
            })
        });
        written.await.map_err(|error| error.to_string())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pending_revocations_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Revocations::open(folder.path().join("revocations.json")).unwrap();
        let revocation = |id: &str| Revocation {
            tenant: "acme".to_owned(),
            id: id.to_owned(),
            in_file: None,
        };
        let revocations = open();
        for id in ["a", "b", "a"] {
            assert_eq!(revocations.add(revocation(id)).await.unwrap(), None);
        }
        let restarted = open();
        assert_eq!(restarted.pending(), [revocation("a"), revocation("b")]);
        restarted.remove(&revocation("a")).await;
        let restarted = open();
        assert!(!restarted.contains("acme", "a") && restarted.contains("acme", "b"));
        assert!(!restarted.contains("other", "b"));
        std::fs::remove_dir_all(folder.path()).unwrap();
        let lost = restarted.add(revocation("c")).await.unwrap();
        assert!(lost.is_some_and(|lost| lost.contains("revocations.json")));
        assert!(restarted.contains("acme", "c"), "refused until the restart");
    }
}
