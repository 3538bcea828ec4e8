use super::description::HostDescription;
use super::discovery::Discovery;
use super::health::{Health, RecheckWaits};
use super::member::{Member, RequiredUpload};
use crate::meter::ByteMeter;
use crate::trace::Trace;
use crate::{Notices, UploadKind};
use frostline_primitives::Lock;
use frostline_wire::StageSeconds;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tokio_util::task::AbortOnDropHandle;

/// Hosts and shared state for a job.
pub(super) struct Fleet {
    /// Never empty. Changes if the hosts have a DNS name.
    members: Lock<Vec<Arc<Member>>>,
    pub(super) uploads: Arc<Lock<Vec<RequiredUpload>>>,
    /// Serializes uploads.
    pub(super) pushing: tokio::sync::Mutex<()>,
    pub(super) notices: Notices,
    /// True if a notice about the precision of a host was sent.
    pub(super) reported_precision: AtomicBool,
    pub(super) meter: ByteMeter,
    waits: RecheckWaits,
    /// Trace of the job's requests.
    trace: Option<Trace>,
    /// Source of further hosts, for DNS names.
    pub(super) discovery: Option<Arc<Discovery>>,
    /// Image processing times by host address, including hosts that have left.
    pub(super) stages: Lock<BTreeMap<String, StageSeconds>>,
    /// Index to assign to the next host.
    next: AtomicUsize,
    /// Answers of the hosts before this job.
    pub(super) before: u64,
    /// Answers of former members.
    departed_answers: AtomicU64,
    /// Checks of unavailable hosts, by host index. Dropping the fleet cancels them.
    checks: Lock<BTreeMap<usize, AbortOnDropHandle<()>>>,
    /// Task that follows the DNS name. Dropping the fleet cancels the task.
    pub(super) following: Lock<Option<AbortOnDropHandle<()>>>,
}

impl Fleet {
    pub(super) fn new(
        known: Vec<HostDescription>,
        trace: Option<Trace>,
        meter: ByteMeter,
        notices: Notices,
        waits: RecheckWaits,
    ) -> Self {
        let alone = known.len() == 1;
        let fleet = Self {
            members: Lock::default(),
            uploads: Arc::default(),
            pushing: tokio::sync::Mutex::default(),
            notices,
            reported_precision: AtomicBool::new(false),
            meter,
            waits,
            trace,
            discovery: None,
            stages: Lock::default(),
            next: AtomicUsize::new(0),
            before: known
                .iter()
                .map(|known| known.client.transport.seen().answers)
                .fold(0, u64::wrapping_add),
            departed_answers: AtomicU64::new(0),
            checks: Lock::default(),
            following: Lock::default(),
        };
        let members = known.into_iter().map(|known| fleet.member(known, alone));
        let members = members.collect();
        *fleet.members.lock() = members;
        fleet
    }

    fn member(&self, known: HostDescription, alone: bool) -> Arc<Member> {
        let health = match known.up {
            true => Health::new(self.waits),
            false => Health::joining(self.waits),
        };
        Arc::new(Member {
            index: self.next.fetch_add(1, Ordering::Relaxed),
            client: known
                .client
                .counting_into(&self.meter)
                .traced(self.trace.as_ref()),
            name: Lock::new(known.name),
            health: Lock::new(health),
            notices: Arc::clone(&self.notices),
            alone: alone && !known.from_dns,
            from_dns: known.from_dns,
            missed_lookups: AtomicU32::new(0),
            joined: AtomicBool::new(known.up),
            uploads: Arc::clone(&self.uploads),
            uploaded: tokio::sync::Mutex::default(),
            doubtful: AtomicBool::new(false),
        })
    }

    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.members.lock().clone()
    }

    /// Removes the members for which `stay` is false and adds `join`. Returns the removed members.
    pub(super) fn change(
        &self,
        stay: impl Fn(&Member) -> bool,
        join: Vec<HostDescription>,
    ) -> Vec<Arc<Member>> {
        let joining: Vec<_> = join.into_iter().map(|known| self.member(known, false)).collect();
        let mut members = self.members.lock();
        let (mut staying, leaving): (Vec<_>, Vec<_>) = members.drain(..).partition(|member| stay(member));
        staying.extend(joining);
        *members = staying;
        drop(members);
        for member in &leaving {
            let answers = member.client.transport.seen().answers;
            self.departed_answers.fetch_add(answers, Ordering::Relaxed);
            self.checks.lock().remove(&member.index);
        }
        leaving
    }

    /// Total number of answers of all hosts.
    pub(super) fn answers(&self) -> u64 {
        let members = self.members();
        let answers = members
            .iter()
            .map(|member| member.client.transport.seen().answers);
        answers.fold(self.departed_answers.load(Ordering::Relaxed), u64::wrapping_add)
    }

    /// Registers an upload that all hosts must have. Replaces an earlier upload of the same kind and name.
    pub(super) fn give(&self, upload: RequiredUpload) {
        let mut uploads = self.uploads.lock();
        let before = uploads.len();
        uploads.retain(|known| known.what != upload.what || known.name != upload.name);
        let replaces = uploads.len() < before;
        uploads.push(upload);
        drop(uploads);
        if replaces {
            self.members().iter().for_each(|member| member.distrust_uploads());
        }
    }

    /// Removes a registered upload, and releases the bytes.
    pub(super) fn forget(&self, what: UploadKind, name: &str) {
        let mut uploads = self.uploads.lock();
        uploads.retain(|known| known.what != what || known.name != name);
        drop(uploads);
        self.members().iter().for_each(|member| member.distrust_uploads());
    }

    /// Removes the last registered upload. Uploads are verified before the next request to any host.
    pub(super) fn withdraw(&self) {
        self.uploads.lock().pop();
        self.members().iter().for_each(|member| member.distrust_uploads());
    }

    /// Removes hosts that are missing from the DNS name if a current host reports the same name, because the
    /// host has moved there.
    fn drop_moved(&self) {
        let members = self.members();
        if members.iter().all(|member| !member.is_missing()) {
            return;
        }
        let named = members
            .iter()
            .filter(|member| !member.is_missing() && member.is_up());
        let named: BTreeSet<Arc<str>> = named.map(|member| member.key()).collect();
        for gone in self.change(
            |member| !member.is_missing() || !named.contains(&member.key()),
            Vec::new(),
        ) {
            gone.left("its address changed".to_owned());
        }
    }

    /// Returns the available hosts, or all hosts if none is available.
    pub(super) fn usable(&self) -> Vec<Arc<Member>> {
        self.drop_moved();
        let members = self.members();
        let up: Vec<_> = members.iter().filter(|member| member.is_up()).cloned().collect();
        if up.is_empty() { members } else { up }
    }

    /// Checks the hosts that have been unavailable long enough.
    pub(super) fn check_due(&self) {
        let members = self.members();
        for member in members.iter().filter(|member| member.is_due()) {
            let mut checks = self.checks.lock();
            let check = checks.get(&member.index);
            if check.is_none_or(AbortOnDropHandle::is_finished) {
                let checked = Arc::clone(member);
                let checking = tokio::spawn(async move { checked.check_again().await });
                checks.insert(member.index, AbortOnDropHandle::new(checking));
            }
        }
    }
}
