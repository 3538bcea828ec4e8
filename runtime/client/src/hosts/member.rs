use super::fleet::Known;
use super::health::Health;
use crate::{ClientError, HostClient, HostState, Notice, Notices, UploadKind, Uploaded};
use bytes::Bytes;
use frostline_batching::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Answers in a row without its address after which a host leaves, even if it works: at one in ten seconds, five minutes. Resolvers that
/// give some of many addresses at random give each now and then.
pub(crate) const MISSING: u32 = 30;

/// What every host of a job needs before it is asked for samples.
#[derive(Clone)]
pub(super) struct Upload {
    pub(super) what: UploadKind,
    pub(super) name: String,
    pub(super) bytes: Bytes,
    /// The hash of a model that the hosts were found to have: any version of its name will do.
    pub(super) found: Option<String>,
}

/// One host of several: whether it is up, and what it has been given.
pub(crate) struct Member {
    /// Its number among all that were ever hosts of the job.
    pub(crate) index: usize,
    /// Counts into the whole job.
    pub(super) client: HostClient,
    /// What it calls itself, where it was asked.
    pub(super) name: Lock<Option<Arc<str>>>,
    pub(super) health: Lock<Health>,
    pub(super) notices: Notices,
    /// Whether it has no others beside it, and is asked whatever it did before.
    pub(super) alone: bool,
    /// Whether it was found by a name, and is known by what it calls itself: its address may be another tomorrow.
    pub(super) found: bool,
    /// How many answers in a row its name's addresses lacked its own.
    pub(super) missing: AtomicU32,
    /// Whether it was ever used.
    pub(super) joined: AtomicBool,
    /// What all of them are to have.
    pub(super) uploads: Arc<Lock<Vec<Upload>>>,
    /// What became of the first of the uploads.
    pub(super) has: tokio::sync::Mutex<Vec<Uploaded>>,
    /// Whether it may lack what it was given, because it was away or refused it.
    pub(super) doubtful: AtomicBool,
}

impl Member {
    /// Its address.
    pub(crate) fn url(&self) -> &str {
        self.client.url()
    }

    /// What is known of it for other jobs.
    pub(super) fn known(&self) -> Known {
        Known {
            client: self.client.clone(),
            name: self.name.lock().clone(),
            found: self.found,
            up: self.joined.load(Ordering::Relaxed),
        }
    }

    /// What objects are placed by: what it is called, or its address.
    pub(super) fn key(&self) -> Arc<str> {
        let name = self.name.lock().clone();
        name.unwrap_or_else(|| self.url().into())
    }

    /// Counts an answer of its name; says whether it stays. One that is missing for a while may only not be among those that this answer
    /// had room for.
    pub(super) fn is_named(&self, named: bool) -> bool {
        if named {
            self.missing.store(0, Ordering::Relaxed);
            return true;
        }
        self.missing.fetch_add(1, Ordering::Relaxed) + 1 < MISSING && self.is_up()
    }

    /// Whether the last answer of its name lacked it.
    pub(super) fn is_missing(&self) -> bool {
        self.missing.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_up(&self) -> bool {
        self.health.lock().is_up()
    }

    pub(super) fn is_due(&self) -> bool {
        self.health.lock().is_due(Instant::now())
    }

    /// It could not be used: leaves it alone for a while, if there are others.
    pub(crate) fn failed(&self, error: &ClientError) {
        if self.alone {
            return;
        }
        self.doubt();
        let was_up = self.health.lock().failed(Instant::now());
        if was_up {
            self.notify(HostState::Down, error.to_string(), None);
        }
    }

    /// It may not have what it was given.
    pub(super) fn doubt(&self) {
        self.doubtful.store(true, Ordering::Relaxed);
    }

    /// It did what it was asked at `begun`.
    pub(crate) fn did_well(&self, begun: Instant) {
        let (was_down, is_up) = {
            let mut health = self.health.lock();
            (health.did_well(begun), health.is_up())
        };
        if !is_up {
            return;
        }
        let joined = self.joined.swap(true, Ordering::Relaxed);
        if was_down {
            let reason = if joined { "it answers again" } else { "it joined" };
            self.notify(HostState::Up, reason.to_owned(), None);
        }
    }

    /// Tells that it changed, and how much longer hosts are waited for if none answers.
    pub(super) fn notify(&self, state: HostState, reason: String, left: Option<Duration>) {
        (self.notices)(Notice::Host {
            host: self.url().to_owned(),
            state,
            reason,
            left_seconds: left.map(|left| left.as_secs_f64()),
        });
    }

    /// Tells that it is no member any more, unless it was told to be down.
    pub(super) fn left(&self, reason: String) {
        if self.is_up() {
            self.notify(HostState::Down, reason, None);
        }
    }

    /// Sends it what it has not been given yet, or may have lost; returns what became of all uploads. Costs nothing when there is
    /// nothing to do.
    pub(crate) async fn catch_up(&self) -> Result<Vec<Uploaded>, ClientError> {
        let mut has = self.has.lock().await;
        if self.doubtful.swap(false, Ordering::Relaxed) {
            has.clear();
        }
        let uploads = self.uploads.lock().clone();
        for upload in uploads.into_iter().skip(has.len()) {
            has.push(self.give(upload).await?);
        }
        Ok(has.clone())
    }

    async fn give(&self, upload: Upload) -> Result<Uploaded, ClientError> {
        let Upload {
            what,
            name,
            bytes,
            found,
        } = upload;
        if let Some(sha256) = found {
            let like = self.client.models_like(&sha256).await?;
            if like
                .iter()
                .any(|model| model.name == name && model.sha256 == sha256)
            {
                return Ok(Uploaded::skipped(sha256, bytes.len()));
            }
        }
        self.client.push(what, &name, bytes, &self.notices).await
    }

    /// Checks whether it is back, and gives it what it needs.
    pub(super) async fn check_again(&self) {
        let begun = Instant::now();
        match self.prepare().await {
            Ok(()) => self.did_well(begun),
            Err(error) => self.failed(&error),
        }
    }

    async fn prepare(&self) -> Result<(), ClientError> {
        self.client.ready().await?;
        if self.found {
            let name = self.client.name().await?;
            *self.name.lock() = name.map(Into::into);
        }
        self.catch_up().await.map(drop)
    }
}
