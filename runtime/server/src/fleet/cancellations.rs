use crate::refusal::Refusal;
use frostline_state::{Cancellation, Clock, Documents, StateError, Unknown};

/// Time in seconds during which a cancelled job is refused. Afterwards, the record is removed as soon as a second
/// clock confirms the time.
const KEPT: u64 = 24 * 3600;

/// Maximum number of cancelled jobs. If it is reached, the oldest cancellation is removed.
const MOST: usize = 4096;

/// Cancelled jobs of all tenants, known to all hosts of the state.
pub(crate) struct Cancellations(Documents<Cancellation>);

impl Cancellations {
    pub(crate) fn new(documents: Documents<Cancellation>) -> Self {
        Self(documents)
    }

    /// Checks that a job was not cancelled.
    ///
    /// # Errors
    /// Returns [`Refusal::Cancelled`] if it was.
    pub(crate) fn check(&self, tenant: &str, id: &str) -> Result<(), Refusal> {
        match self.0.get(&name(tenant, id)) {
            Some(_) => Err(Refusal::Cancelled { id: id.to_owned() }),
            None => Ok(()),
        }
    }

    /// Lists the tenant and id of all cancelled jobs, with the time of the cancellation.
    pub(super) fn list(&self) -> Vec<(String, String, u64)> {
        let all = self.0.list("").into_iter();
        all.filter_map(|(name, cancelled)| {
            let (tenant, id) = name.split_once('/')?;
            Some((tenant.to_owned(), id.to_owned(), cancelled.at))
        })
        .collect()
    }

    /// Cancels a job at the time `at` in seconds since 1970.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be written.
    pub(crate) async fn cancel(&self, tenant: &str, id: &str, at: u64) -> Result<(), StateError> {
        let all = self.0.list("");
        if all.len() >= MOST
            && let Some((oldest, _)) = all.iter().min_by_key(|(_, cancelled)| cancelled.at)
        {
            self.remove(oldest).await?;
        }
        let unknown = Unknown::new();
        let new = Cancellation { at, unknown };
        let key = name(tenant, id);
        let cancelled = self.0.update(&key, |known| {
            Ok::<_, StateError>(Some(known.unwrap_or(&new).clone()))
        });
        cancelled.await.map(drop)
    }

    /// Removes cancellations after [`KEPT`], if a second clock confirms the time.
    pub(super) async fn expire(&self, clock: &Clock) -> Result<(), StateError> {
        if !clock.is_confirmed() {
            return Ok(());
        }
        let now = clock.now();
        for (name, cancelled) in self.0.list("") {
            if cancelled.at.saturating_add(KEPT) <= now {
                self.remove(&name).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<(), StateError> {
        self.0.update(name, |_| Ok::<_, StateError>(None)).await.map(drop)
    }
}

fn name(tenant: &str, id: &str) -> String {
    format!("{tenant}/{id}")
}
