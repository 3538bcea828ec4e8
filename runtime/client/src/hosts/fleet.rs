use super::discovery::Discovery;
use super::health::{Health, Waits};
use super::member::{Member, Upload};
use crate::meter::ByteMeter;
use crate::trace::Trace;
use crate::{HostClient, Notices};
use frostline_batching::Lock;
use frostline_wire::StageSeconds;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tokio_util::task::AbortOnDropHandle;

/// The hosts of one job.
pub(super) struct Fleet {
    /// Never none; those of a name come and go.
    members: Lock<Vec<Arc<Member>>>,
    pub(super) uploads: Arc<Lock<Vec<Upload>>>,
    /// One upload after the other.
    pub(super) pushing: tokio::sync::Mutex<()>,
    pub(super) notices: Notices,
    pub(super) meter: ByteMeter,
    waits: Waits,
    /// What its requests belong to.
    trace: Option<Trace>,
    /// Where more of them are found, if anywhere.
    pub(super) discovery: Option<Arc<Discovery>>,
    /// Where the time of images went, by host's address, also of those that have left.
    pub(super) stages: Lock<BTreeMap<String, StageSeconds>>,
    /// What the next one is numbered.
    next: AtomicUsize,
    /// Answers that its hosts had given before it was there.
    pub(super) before: u64,
    /// Answers of those that have left.
    of_gone: AtomicU64,
    /// Checks of hosts that were down, by the host's index; they end with the fleet.
    checks: Lock<BTreeMap<usize, AbortOnDropHandle<()>>>,
    /// What looks for others; it ends with the fleet too.
    pub(super) following: Lock<Option<AbortOnDropHandle<()>>>,
}

/// A host before there is a job.
pub(super) struct Known {
    pub(super) client: HostClient,
    /// What it calls itself, where it was asked.
    pub(super) name: Option<Arc<str>>,
    /// Whether it was found by a name, not given.
    pub(super) found: bool,
    /// Whether it is used before it was checked.
    pub(super) up: bool,
}

impl Known {
    pub(super) fn given(client: HostClient) -> Self {
        Self {
            client,
            name: None,
            found: false,
            up: true,
        }
    }
}

impl Fleet {
    pub(super) fn new(
        known: Vec<Known>,
        trace: Option<Trace>,
        meter: ByteMeter,
        notices: Notices,
        waits: Waits,
    ) -> Self {
        let alone = known.len() == 1;
        let fleet = Self {
            members: Lock::default(),
            uploads: Arc::default(),
            pushing: tokio::sync::Mutex::default(),
            notices,
            meter,
            waits,
            trace,
            discovery: None,
            stages: Lock::default(),
            next: AtomicUsize::new(0),
            before: known
                .iter()
                .map(|known| known.client.seen().answers)
                .fold(0, u64::wrapping_add),
            of_gone: AtomicU64::new(0),
            checks: Lock::default(),
            following: Lock::default(),
        };
        let members = known.into_iter().map(|known| fleet.member(known, alone));
        let members = members.collect();
        *fleet.members.lock() = members;
        fleet
    }

    fn member(&self, known: Known, alone: bool) -> Arc<Member> {
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
            alone: alone && !known.found,
            found: known.found,
            missing: AtomicU32::new(0),
            joined: AtomicBool::new(known.up),
            uploads: Arc::clone(&self.uploads),
            has: tokio::sync::Mutex::default(),
            doubtful: AtomicBool::new(false),
        })
    }

    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.members.lock().clone()
    }

    /// Goes on with those of its members that `stay`, and with these; returns those that leave.
    pub(super) fn change(&self, stay: impl Fn(&Member) -> bool, join: Vec<Known>) -> Vec<Arc<Member>> {
        let joining: Vec<_> = join.into_iter().map(|known| self.member(known, false)).collect();
        let mut members = self.members.lock();
        let (mut staying, leaving): (Vec<_>, Vec<_>) = members.drain(..).partition(|member| stay(member));
        staying.extend(joining);
        *members = staying;
        drop(members);
        for member in &leaving {
            let answers = member.client.seen().answers;
            self.of_gone.fetch_add(answers, Ordering::Relaxed);
            self.checks.lock().remove(&member.index);
        }
        leaving
    }

    /// Answers of all of them until now.
    pub(super) fn answers(&self) -> u64 {
        let members = self.members();
        let answers = members.iter().map(|member| member.client.seen().answers);
        answers.fold(self.of_gone.load(Ordering::Relaxed), u64::wrapping_add)
    }

    /// All are to have this too, in the place of what had its name.
    pub(super) fn give(&self, upload: Upload) {
        let mut uploads = self.uploads.lock();
        let before = uploads.len();
        uploads.retain(|known| known.what != upload.what || known.name != upload.name);
        let replaces = uploads.len() < before;
        uploads.push(upload);
        drop(uploads);
        if replaces {
            self.members().iter().for_each(|member| member.doubt());
        }
    }

    /// What was to be uploaded last is needed no more; what is there of it is not known.
    pub(super) fn withdraw(&self) {
        self.uploads.lock().pop();
        self.members().iter().for_each(|member| member.doubt());
    }

    /// Those leave that their name lacks where another one, which it has, calls itself the same: they came back there.
    fn drop_moved(&self) {
        let members = self.members();
        if members.iter().all(|member| !member.is_missing()) {
            return;
        }
        let named = members
            .iter()
            .filter(|member| !member.is_missing() && member.is_up());
        let named: BTreeSet<Arc<str>> = named.map(|member| member.key()).collect();
        let stays = |member: &Member| !member.is_missing() || !named.contains(&member.key());
        for gone in self.change(stays, Vec::new()) {
            gone.left("it is at another address now".to_owned());
        }
    }

    /// Those that are up, or all where none is.
    pub(super) fn usable(&self) -> Vec<Arc<Member>> {
        self.drop_moved();
        let members = self.members();
        let up: Vec<_> = members.iter().filter(|member| member.is_up()).cloned().collect();
        if up.is_empty() { members } else { up }
    }

    /// Checks those that were down for long enough.
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
