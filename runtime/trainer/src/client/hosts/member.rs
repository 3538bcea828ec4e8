use super::health::{Health, Waits};
use crate::client::{ClientError, HostClient, Uploaded};
use crate::{Event, Events, HostState, UploadKind};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What every host of a job needs before it is asked for samples.
#[derive(Clone)]
pub(super) struct Upload {
    pub(super) what: UploadKind,
    pub(super) name: String,
    pub(super) bytes: Bytes,
}

/// One host of several: whether it is up, and what it has been given.
pub(crate) struct Member {
    index: usize,
    client: HostClient,
    health: Mutex<Health>,
    /// Told of changes; `None` for a host that has no others beside it, and is asked whatever it did before.
    events: Option<Events>,
    uploads: Arc<Mutex<Vec<Upload>>>,
    /// What became of the first of the uploads.
    has: tokio::sync::Mutex<Vec<Uploaded>>,
    /// Whether it may have lost what it had, because it was away.
    doubtful: AtomicBool,
}

impl Member {
    pub(super) fn new(
        index: usize,
        client: HostClient,
        events: Option<Events>,
        uploads: Arc<Mutex<Vec<Upload>>>,
        waits: Waits,
    ) -> Self {
        Self {
            index,
            client,
            health: Mutex::new(Health::new(waits)),
            events,
            uploads,
            has: tokio::sync::Mutex::default(),
            doubtful: AtomicBool::new(false),
        }
    }

    /// Its place among the hosts as they were given.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        self.client.url()
    }

    /// Counts into the whole job.
    pub(super) fn client(&self) -> &HostClient {
        &self.client
    }

    pub(super) fn is_up(&self) -> bool {
        self.health().is_up()
    }

    pub(super) fn is_due(&self) -> bool {
        self.health().is_due(Instant::now())
    }

    /// It could not be used: leaves it alone for a while, if there are others.
    pub(crate) fn failed(&self, error: &ClientError) {
        let Some(events) = &self.events else { return };
        self.doubtful.store(true, Ordering::Relaxed);
        if self.health().failed(Instant::now()) {
            events(Event::Host {
                host: self.url().to_owned(),
                state: HostState::Down,
                reason: error.to_string(),
            });
        }
    }

    /// It did what it was asked.
    pub(crate) fn did_well(&self) {
        let was_down = self.health().did_well();
        if let Some(events) = self.events.as_ref().filter(|_| was_down) {
            events(Event::Host {
                host: self.url().to_owned(),
                state: HostState::Up,
                reason: "it answers again".to_owned(),
            });
        }
    }

    /// Sends it what it has not been given yet, or may have lost; returns what became of all uploads. Costs nothing when there is
    /// nothing to do.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) async fn catch_up(&self) -> Result<Vec<Uploaded>, ClientError> {
        let mut has = self.has.lock().await;
        if self.doubtful.swap(false, Ordering::Relaxed) {
            has.clear();
        }
        let uploads = lock(&self.uploads).clone();
        let events = self.events.clone().unwrap_or_else(|| Arc::new(|_| ()));
        for upload in uploads.get(has.len()..).unwrap_or_default() {
            has.push(self.push(upload.clone(), &events).await?);
        }
        Ok(has.clone())
    }

    pub(super) async fn push(&self, upload: Upload, events: &Events) -> Result<Uploaded, ClientError> {
        let Upload { what, name, bytes } = upload;
        self.client.push(what, &name, bytes, events).await
    }

    /// Looks whether it is back, and gives it what it needs.
    pub(super) async fn look_again(&self) {
        let answered = match self.client.ready().await {
            Ok(()) => self.catch_up().await.map(drop),
            Err(error) => Err(error),
        };
        match answered {
            Ok(()) => self.did_well(),
            Err(error) => self.failed(&error),
        }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        lock(&self.health)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
