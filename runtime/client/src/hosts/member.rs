use super::description::HostDescription;
use super::health::Health;
use crate::{ClientError, HostClient, HostState, Notice, Notices, UploadKind, Uploaded};
use bytes::Bytes;
use frostline_primitives::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Number of consecutive lookups without a host after which the host leaves, even if it works: five minutes
/// at ten-second intervals. If resolvers return random subsets, each address still appears more frequently.
pub(crate) const MISSING: u32 = 30;

/// An upload that all hosts need before sample requests.
#[derive(Clone)]
pub(super) struct RequiredUpload {
    pub(super) what: UploadKind,
    pub(super) name: String,
    pub(super) bytes: Bytes,
    /// Hash if the hosts already had this model. Any version under this name with this hash is sufficient.
    pub(super) found: Option<String>,
}

/// A host in a job, including health and upload state.
pub(crate) struct Member {
    /// Unique index in the job, never reused.
    pub(crate) index: usize,
    /// Counts bytes toward the whole job.
    pub(super) client: HostClient,
    /// Name that the host reports, if known.
    pub(super) name: Lock<Option<Arc<str>>>,
    pub(super) health: Lock<Health>,
    pub(super) notices: Notices,
    /// True for a single host, which is used regardless of failures.
    pub(super) alone: bool,
    /// True if the host was found by a DNS name. Such a host is identified by the reported name, because the
    /// address may change.
    pub(super) from_dns: bool,
    /// Number of consecutive lookups without the host's address.
    pub(super) missed_lookups: AtomicU32,
    /// True once the host has been available for requests.
    pub(super) joined: AtomicBool,
    /// Uploads that all hosts must have.
    pub(super) uploads: Arc<Lock<Vec<RequiredUpload>>>,
    /// Upload outcomes. This list may be shorter than `uploads`.
    pub(super) uploaded: tokio::sync::Mutex<Vec<Uploaded>>,
    /// True if uploads may be missing on the host after a failure.
    pub(super) doubtful: AtomicBool,
}

impl Member {
    pub(crate) fn url(&self) -> &str {
        self.client.url()
    }

    /// Returns the description of this host for another job.
    pub(super) fn known(&self) -> HostDescription {
        HostDescription {
            client: self.client.clone(),
            name: self.name.lock().clone(),
            from_dns: self.from_dns,
            up: self.joined.load(Ordering::Relaxed),
        }
    }

    /// Returns the placement key. This is the reported name if known, and otherwise the address.
    pub(super) fn key(&self) -> Arc<str> {
        let name = self.name.lock().clone();
        name.unwrap_or_else(|| self.url().into())
    }

    /// Records a lookup. Returns true if the host stays a member. A host that is missing for a short time may
    /// only be absent from a random subset of the addresses.
    pub(super) fn is_named(&self, named: bool) -> bool {
        if named {
            self.missed_lookups.store(0, Ordering::Relaxed);
            return true;
        }
        self.missed_lookups.fetch_add(1, Ordering::Relaxed) + 1 < MISSING && self.is_up()
    }

    /// Returns true if the host was missing from the last lookup.
    pub(super) fn is_missing(&self) -> bool {
        self.missed_lookups.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_up(&self) -> bool {
        self.health.lock().is_up()
    }

    pub(super) fn is_due(&self) -> bool {
        self.health.lock().is_due(Instant::now())
    }

    /// Records a failure. Unless it is the only one, the host is not used for a while.
    pub(crate) fn record_failure(&self, error: &ClientError) {
        if self.alone {
            return;
        }
        self.distrust_uploads();
        let was_up = self.health.lock().failed(Instant::now());
        if was_up {
            self.notify(HostState::Down, error.to_string(), None);
        }
    }

    /// Records that uploads may be missing on the host.
    pub(super) fn distrust_uploads(&self) {
        self.doubtful.store(true, Ordering::Relaxed);
    }

    /// Records a successful request that began at `begun`.
    pub(crate) fn record_success(&self, begun: Instant) {
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

    /// Reports a state change. During an outage, `left` is the remaining time.
    pub(super) fn notify(&self, state: HostState, reason: String, left: Option<Duration>) {
        (self.notices)(Notice::Host {
            host: self.url().to_owned(),
            state,
            reason,
            left_seconds: left.map(|left| left.as_secs_f64()),
        });
    }

    /// Reports that the host has left, unless it was already reported as down.
    pub(super) fn left(&self, reason: String) {
        if self.is_up() {
            self.notify(HostState::Down, reason, None);
        }
    }

    /// Sends the uploads that the host does not have or may have lost. Returns the outcomes of all uploads.
    /// If nothing is pending, no request is sent.
    pub(crate) async fn catch_up(&self) -> Result<Vec<Uploaded>, ClientError> {
        let mut has = self.uploaded.lock().await;
        if self.doubtful.swap(false, Ordering::Relaxed) {
            has.clear();
        }
        let uploads = self.uploads.lock().clone();
        for upload in uploads.into_iter().skip(has.len()) {
            has.push(self.give(upload).await?);
        }
        Ok(has.clone())
    }

    async fn give(&self, upload: RequiredUpload) -> Result<Uploaded, ClientError> {
        let RequiredUpload {
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

    /// Checks whether the host has recovered, and sends pending uploads.
    pub(super) async fn check_again(&self) {
        let begun = Instant::now();
        match self.prepare().await {
            Ok(()) => self.record_success(begun),
            Err(error) => self.record_failure(&error),
        }
    }

    async fn prepare(&self) -> Result<(), ClientError> {
        self.client.ready().await?;
        if self.from_dns {
            let name = self.client.load().await?.name;
            *self.name.lock() = name.map(Into::into);
        }
        self.catch_up().await.map(drop)
    }
}
