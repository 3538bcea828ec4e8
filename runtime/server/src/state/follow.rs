//! A host keeps up with what others on its state change.

use super::{SharedState, StateError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often news is looked for. Changes are to be seen everywhere within three seconds.
const LOOK: Duration = Duration::from_secs(1);

/// How often everything is read again, for what a host that died could not tell of any more.
const REVIEW: Duration = Duration::from_secs(60);

/// The longest pause between tries while the store cannot be read.
const LONGEST: Duration = Duration::from_secs(16);

/// Follows the others until `stop`. While the state cannot be read the host goes on with what it knows.
pub(crate) async fn follow(state: &SharedState, stop: CancellationToken) {
    let (mut pause, mut review) = (LOOK, Instant::now() + REVIEW);
    while tokio::time::timeout(pause, stop.cancelled()).await.is_err() {
        let all = Instant::now() >= review;
        match state.catch_up(all).await {
            Ok(()) => {
                if pause > LOOK {
                    tracing::info!("the host's state can be read again");
                }
                pause = LOOK;
                if all {
                    review = Instant::now() + REVIEW;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the host's state cannot be read; this host goes on with what it knows");
                // What was told of and not read is among all.
                review = Instant::now();
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

impl SharedState {
    /// Reads what others changed, or everything.
    async fn catch_up(&self, all: bool) -> Result<(), StateError> {
        if all {
            self.changes.skip().await?;
            for documents in &self.followed {
                documents.catch_up_all().await?;
            }
        }
        for change in self.changes.news().await? {
            let followed = self.followed.iter();
            for documents in followed.filter(|documents| documents.kind() == change.kind) {
                documents.catch_up(&change.name).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Found;
    use super::*;
    use crate::config::Limits;
    use bytes::Bytes;
    use frostline_objects::Store;
    use std::sync::Arc;

    async fn host(folder: &std::path::Path) -> SharedState {
        let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
        SharedState::open(store, &Limits::default()).await.unwrap()
    }

    async fn put(host: &SharedState, name: &str) {
        let bytes = Bytes::from(name.to_owned());
        host.guests.of("acme").put(name, name, bytes, ()).await.unwrap();
    }

    fn has(host: &SharedState, name: &str) -> bool {
        matches!(host.guests.of("acme").find(name, None), Found::Version(_))
    }

    #[tokio::test]
    async fn a_host_sees_what_another_uploads_and_deletes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (host(folder.path()).await, host(folder.path()).await);
        put(&one, "a").await;
        two.catch_up(false).await.unwrap();
        assert!(has(&two, "a"));
        assert_eq!(two.guests.blob("a").await.unwrap(), "a");
        assert!(two.guests.of("acme").disable("a", true).await.unwrap());
        one.catch_up(false).await.unwrap();
        assert!(one.guests.of("acme").disabled("a"));
        assert!(two.guests.of("acme").delete("a").await.unwrap());
        one.catch_up(false).await.unwrap();
        assert!(!has(&one, "a"));
    }

    #[tokio::test]
    async fn what_nobody_told_of_is_found_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (host(folder.path()).await, host(folder.path()).await);
        put(&one, "a").await;
        // As if the host had died before it told the others.
        std::fs::remove_dir_all(folder.path().join("changes")).unwrap();
        two.catch_up(false).await.unwrap();
        assert!(!has(&two, "a"));
        two.catch_up(true).await.unwrap();
        assert!(has(&two, "a"));
    }
}
