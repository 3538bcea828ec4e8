//! Management of hosts that serve the same data, including object placement, health checks and uploads.

mod description;
mod discovery;
mod fleet;
mod health;
mod member;
mod membership;
mod placement;
mod restart;

#[cfg(test)]
pub(crate) use discovery::Lookup;
pub(crate) use health::RecheckWaits;
#[cfg(test)]
pub(crate) use member::MISSING;
pub(crate) use member::Member;
pub use placement::place;
pub(crate) use placement::placement_keys;

use crate::client::ignore_notices;
use crate::meter::ByteMeter;
use crate::retry::HostActivity;
use crate::trace::Trace;
use crate::{ClientError, HostClient, LabelTable, Listing, Notice, Notices, UploadKind, Uploaded};
use bytes::Bytes;
use description::HostDescription;
use discovery::Discovery;
use fleet::Fleet;
use frostline_wire::StageSeconds;
use frostline_wire::{
    Description, DescriptionRequest, Layout, ObjectInfo, Precision, SkippedNames, UploadRef,
};
use futures::future::join_all;
use member::RequiredUpload;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// One or more hosts that serve the same data to the same tenant. Clones share the state of the hosts.
#[derive(Clone)]
pub struct Hosts {
    fleet: Arc<Fleet>,
    meter: ByteMeter,
}

impl Hosts {
    /// Combines hosts. The placement of objects depends on the addresses of the hosts, not on the order of
    /// `clients`.
    ///
    /// # Errors
    /// Returns [`ClientError::Address`] if `clients` is empty or contains a host twice.
    pub fn new(clients: Vec<HostClient>) -> Result<Self, ClientError> {
        let mut seen = BTreeSet::new();
        if clients.is_empty() {
            return Err(ClientError::address("", "there must be at least one host"));
        }
        if let Some(twice) = clients.iter().find(|client| !seen.insert(client.url())) {
            let reason = "duplicate host; list each host only once";
            return Err(ClientError::address(twice.url(), reason));
        }
        let known = clients.into_iter().map(HostDescription::given).collect();
        Ok(Self::outside_jobs(known, ByteMeter::default(), None))
    }

    /// Body bytes received from all hosts through this value and all clones, including the bytes of failed
    /// calls.
    pub fn bytes_received(&self) -> u64 {
        self.meter.bytes()
    }

    /// Creates the state of hosts that are not used by a job yet.
    fn outside_jobs(
        known: Vec<HostDescription>,
        meter: ByteMeter,
        discovery: Option<Arc<Discovery>>,
    ) -> Self {
        let mut fleet = Fleet::new(known, None, meter, ignore_notices(), RecheckWaits::default());
        fleet.discovery = discovery;
        Self::from_fleet(fleet)
    }

    fn from_fleet(fleet: Fleet) -> Self {
        Self {
            meter: fleet.meter.clone(),
            fleet: Arc::new(fleet),
        }
    }

    /// Returns the same hosts with fresh health state for a job. `notices` receives changes of host states
    /// and other events. Bytes are counted from zero, and also count toward this value. If the hosts come
    /// from a DNS name, the job follows changes of the addresses.
    pub fn for_job(&self, notices: Notices) -> Self {
        self.for_job_with(notices, RecheckWaits::default())
    }

    pub(crate) fn for_job_with(&self, notices: Notices, waits: RecheckWaits) -> Self {
        let known = self.fleet.members().iter().map(|member| member.known()).collect();
        let trace = Trace::of_job();
        if let Some(trace) = &trace {
            tracing::info!(trace = trace.id(), "started the trace of the job's requests");
        }
        let mut fleet = Fleet::new(known, trace, self.meter.child(), notices, waits);
        fleet.discovery.clone_from(&self.fleet.discovery);
        let hosts = Self::from_fleet(fleet);
        hosts.fleet.follow();
        hosts
    }

    /// Returns these hosts with a separate byte count that starts at zero. The bytes also count toward this
    /// value.
    pub fn metered(&self) -> Self {
        Self {
            fleet: Arc::clone(&self.fleet),
            meter: self.meter.child(),
        }
    }

    /// Returns the current host activity.
    pub(crate) fn seen(&self) -> HostActivity {
        HostActivity {
            answers: self.fleet.answers(),
            observed: tokio::time::Instant::now(),
        }
    }

    /// Adds the image processing times that `member` reports for an answer.
    pub(crate) fn count_stages(&self, member: &Member, seconds: StageSeconds) {
        let mut stages = self.fleet.stages.lock();
        *stages.entry(member.url().to_owned()).or_default() += seconds;
    }

    /// Returns image processing times by host address. Omits hosts without reported times.
    pub fn stage_seconds(&self) -> Vec<(String, StageSeconds)> {
        let stages = self.fleet.stages.lock();
        let said = stages.iter().filter(|(_, seconds)| !seconds.shares().is_empty());
        said.map(|(host, seconds)| (host.clone(), *seconds)).collect()
    }

    /// Sends a notice to the listener of the job.
    pub(crate) fn notify(&self, notice: Notice) {
        (self.fleet.notices)(notice);
    }

    /// Sends a notice if `member` computes in another precision than the job permits. Later calls have no
    /// effect, so the job receives a single notice.
    pub(crate) fn report_precision(&self, member: &Member, permitted: Precision, computed: Precision) {
        if permitted != computed && !self.fleet.reported_precision.swap(true, Ordering::Relaxed) {
            self.notify(Notice::Precision {
                host: member.url().to_owned(),
                permitted,
                computed,
            });
        }
    }

    /// Returns a client of `member` that counts bytes toward this value.
    pub(crate) fn client(&self, member: &Member) -> HostClient {
        member.client.counting_into(&self.meter)
    }

    /// Returns all hosts, available or not.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        self.fleet.members()
    }

    /// Returns the addresses of all hosts, for messages.
    pub(crate) fn names(&self) -> String {
        let members = self.fleet.members();
        let names: Vec<&str> = members.iter().map(|member| member.url()).collect();
        names.join(", ")
    }

    /// Returns clients for all hosts, including unavailable ones.
    pub fn clients(&self) -> Vec<HostClient> {
        let members = self.fleet.members();
        members.iter().map(|member| self.client(member)).collect()
    }

    /// Returns true if all hosts are reached over loopback, and so most likely are this machine.
    pub fn are_loopback(&self) -> bool {
        let members = self.fleet.members();
        members.iter().all(|member| member.client.transport.is_loopback())
    }

    /// Returns the hosts that may be asked now, except those in `tried`: all available hosts, or all hosts if
    /// none is available. Also starts checks of hosts that have been down long enough.
    pub(crate) fn candidates(&self, tried: &BTreeSet<usize>) -> Vec<Arc<Member>> {
        self.fleet.check_due();
        let mut usable = self.fleet.usable();
        usable.retain(|member| !tried.contains(&member.index));
        usable
    }

    /// Returns true if `host` is still a candidate.
    pub(crate) fn may_be_asked(&self, host: &Member) -> bool {
        let members = self.fleet.members();
        let there = members.iter().any(|member| member.index == host.index);
        there && (host.is_up() || members.iter().all(|member| !member.is_up()))
    }

    /// Lists all samples under `root`, laid out as `layout`. Uses the first host that answers. Invalid names
    /// and links out of the root are reported as notices.
    ///
    /// # Errors
    /// Returns the errors of [`Hosts::first`].
    pub async fn listing(&self, root: &str, layout: Layout) -> Result<Listing, ClientError> {
        let listing = self.first(|client| async move { client.listing(root, layout).await });
        let listing = listing.await?;
        let SkippedNames { count, names, links } = listing.no_keys.clone();
        if count > 0 {
            self.notify(Notice::NoKeys { count, names });
        }
        if !links.is_empty() {
            self.notify(Notice::OutwardLinks { links });
        }
        Ok(listing)
    }

    /// Reads the labels table in the data root `root` from the first host that answers. Returns `None` if the
    /// listing has no table. The inner error is the reason for an unreadable table.
    ///
    /// # Errors
    /// Returns the errors of [`Hosts::first`].
    pub async fn labels_table(
        &self,
        root: &str,
        listing: &Listing,
    ) -> Result<Option<Result<Bytes, String>>, ClientError> {
        let mut objects = listing.iter().map(|(_, object)| object);
        let Some(table) = objects.find(|object| object.key == LabelTable::KEY) else {
            return Ok(None);
        };
        let most = LabelTable::MOST_BYTES;
        if table.size > most {
            let why = format!("it has {} bytes, the limit is {most}", table.size);
            return Ok(Some(Err(why)));
        }
        let table = &[ObjectInfo::from(table)];
        let read = self.first(|client| async move { client.read(root, table).await });
        let read = read.await?.pop();
        Ok(read.map(|read| read.map_err(|error| error.message)))
    }

    /// Returns the hash of each object under `root` in the listed version, in the order of `objects`, from the first
    /// host that answers. `None` if the object cannot be read or no host answers. A request contains up to `most`
    /// objects.
    pub async fn digests(&self, root: &str, objects: &[ObjectInfo], most: usize) -> Vec<Option<u64>> {
        let mut digests = Vec::with_capacity(objects.len());
        for part in objects.chunks(most.max(1)) {
            let read = self.first(|client| async move { client.digests(root, part).await });
            digests.extend(read.await.unwrap_or_else(|_| vec![None; part.len()]));
        }
        digests
    }

    /// Returns the name under which every host has the model with this hash, or `None` if a host does not
    /// have it or cannot be asked.
    pub async fn name_of(&self, sha256: &str) -> Option<String> {
        let all = self.each(|client| async move { client.models_like(sha256).await });
        let all = all.await.ok()?;
        let everywhere = all
            .iter()
            .map(|models| -> BTreeSet<String> {
                let like = models.iter().filter(|model| model.sha256 == sha256);
                like.map(|model| model.name.clone()).collect()
            })
            .reduce(|one, other| &one & &other)?;
        let asked = all.len() == self.fleet.members().len();
        everywhere.into_iter().next().filter(|_| asked)
    }

    /// Describes the guest's support for a model, according to the first host that answers.
    ///
    /// # Errors
    /// Returns the errors of [`Hosts::first`].
    pub async fn describe(&self, request: &DescriptionRequest) -> Result<Description, ClientError> {
        self.first(|client| async move { client.describe(request).await })
            .await
    }

    /// Uploads a guest or a model to every host, unless the host has the same bytes under this name.
    /// Unavailable hosts receive the upload when they return.
    ///
    /// # Errors
    /// Returns the errors of [`Hosts::each`].
    pub async fn push(&self, what: UploadKind, name: &str, bytes: Bytes) -> Result<Uploaded, ClientError> {
        Ok(self.give(what, name, bytes, None).await?.0)
    }

    /// Uploads like [`Hosts::push`], and keeps the bytes only if a host does not have them yet.
    ///
    /// # Errors
    /// Returns the errors of [`Hosts::each`].
    pub async fn push_once(
        &self,
        what: UploadKind,
        name: &str,
        bytes: Bytes,
    ) -> Result<Uploaded, ClientError> {
        let (uploaded, hosts) = self.give(what, name, bytes, None).await?;
        // Hosts with a DNS name can join later.
        if hosts == self.fleet.members().len() && self.fleet.discovery.is_none() {
            let _one = self.fleet.pushing.lock().await;
            self.fleet.forget(what, name);
        }
        Ok(uploaded)
    }

    /// Removes a guest or a model with all versions from every host, and stops sending it to hosts that join or
    /// return. Returns true if a host had it.
    ///
    /// # Errors
    /// Returns the first error, after asking all hosts.
    pub async fn remove(&self, what: UploadKind, name: &str) -> Result<bool, ClientError> {
        let _one = self.fleet.pushing.lock().await;
        self.fleet.forget(what, name);
        let clients = self.clients();
        let all = join_all(clients.iter().map(|client| client.remove(what, name))).await;
        let all: Vec<bool> = all.into_iter().collect::<Result<_, _>>()?;
        Ok(all.contains(&true))
    }

    /// Registers a model that the hosts have according to [`Hosts::name_of`]. The bytes are sent only to
    /// hosts that do not have a version with this hash under this name, such as hosts that join later.
    ///
    /// # Errors
    /// Returns the errors of [`Hosts::push`].
    pub async fn keep(&self, model: &UploadRef, bytes: Bytes) -> Result<Uploaded, ClientError> {
        let found = Some(model.sha256.clone());
        let given = self.give(UploadKind::Model, &model.name, bytes, found);
        Ok(given.await?.0)
    }

    /// Uploads to every available host. With `found`, hosts that have a model with this hash under this name keep it.
    /// Returns the outcome and the number of these hosts.
    async fn give(
        &self,
        what: UploadKind,
        name: &str,
        bytes: Bytes,
        found: Option<String>,
    ) -> Result<(Uploaded, usize), ClientError> {
        let upload = RequiredUpload {
            what,
            name: name.to_owned(),
            bytes,
            found,
        };
        let _one = self.fleet.pushing.lock().await;
        self.fleet.give(upload);
        let all = self.each_member(|member| async move { member.catch_up().await });
        let all = all.await.inspect_err(|_| self.fleet.withdraw())?;
        let hosts = all.len();
        let mut last = all.into_iter().filter_map(|mut uploaded| uploaded.pop());
        let first = last.next().ok_or(ClientError::Ended { part: "upload" })?;
        let skipped = first.skipped && last.all(|uploaded| uploaded.skipped);
        Ok((Uploaded { skipped, ..first }, hosts))
    }

    /// Asks hosts in sequence until a host answers. Waits for draining hosts. Also waits during an outage,
    /// but only if a host answered this job before.
    ///
    /// # Errors
    /// Returns the first refusal that other hosts would repeat, the error of a single host, or
    /// [`ClientError::NoHost`] if no host answers.
    pub async fn first<T, F>(&self, work: impl Fn(HostClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut awaited = None;
        let mut looked = false;
        loop {
            let mut last = None;
            let seen = self.seen();
            let asked = self.fleet.usable();
            for member in &asked {
                let begun = Instant::now();
                match work(self.client(member)).await {
                    Ok(answer) => {
                        member.record_success(begun);
                        self.is_back(awaited);
                        return Ok(answer);
                    }
                    Err(error) => last = Some(prefer_draining(last, self.leave_out(member, error)?)),
                }
            }
            if last.as_ref().is_some_and(ClientError::may_succeed_elsewhere)
                && self.fleet.others(&asked, &mut looked).await
            {
                continue;
            }
            self.await_return(&mut awaited, last, seen).await?;
        }
    }

    /// Runs `work` on every available host concurrently and returns the successful results.
    ///
    /// # Errors
    /// Returns the errors of [`Hosts::first`].
    pub async fn each<T, F>(&self, work: impl Fn(HostClient) -> F) -> Result<Vec<T>, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.each_member(|member| work(self.client(&member))).await
    }

    async fn each_member<T, F>(&self, work: impl Fn(Arc<Member>) -> F) -> Result<Vec<T>, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut awaited = None;
        let mut looked = false;
        loop {
            let asked = self.fleet.usable();
            let seen = self.seen();
            let begun = Instant::now();
            let answers = join_all(asked.iter().map(|member| work(Arc::clone(member)))).await;
            let mut brought = Vec::new();
            let mut last = None;
            for (member, answer) in asked.iter().zip(answers) {
                match answer {
                    Ok(answer) => {
                        member.record_success(begun);
                        brought.push(answer);
                    }
                    Err(error) => last = Some(prefer_draining(last, self.leave_out(member, error)?)),
                }
            }
            if !brought.is_empty() {
                self.is_back(awaited);
                return Ok(brought);
            }
            if last.as_ref().is_some_and(ClientError::may_succeed_elsewhere)
                && self.fleet.others(&asked, &mut looked).await
            {
                continue;
            }
            self.await_return(&mut awaited, last, seen).await?;
        }
    }

    /// Runs `work` on every available host concurrently and returns all results. The caller handles failures.
    pub async fn all<T, F>(&self, work: impl Fn(HostClient) -> F) -> Vec<Result<T, ClientError>>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let asked = self.fleet.usable();
        join_all(asked.iter().map(|member| work(self.client(member)))).await
    }

    /// Marks a host as failed if another host may succeed. Busy hosts remain in use. Returns `Err` if the
    /// error is final.
    fn leave_out(&self, member: &Member, error: ClientError) -> Result<ClientError, ClientError> {
        if error.may_succeed_elsewhere() {
            member.record_failure(&error);
        } else if !error.is_busy() {
            return Err(error);
        }
        Ok(error)
    }

    fn none_left(&self, last: Option<ClientError>) -> ClientError {
        match last {
            Some(error) if self.fleet.members().len() == 1 => error,
            Some(error) => ClientError::NoHost {
                hosts: self.names(),
                source: Box::new(error),
            },
            None => ClientError::Ended { part: "set of hosts" },
        }
    }
}

/// Selects the error to act on. Prefers the error of a draining host, because the caller waits for draining
/// hosts.
fn prefer_draining(before: Option<ClientError>, error: ClientError) -> ClientError {
    let stopping = before.filter(|before| before.is_stopping() && !error.is_stopping());
    stopping.unwrap_or(error)
}

impl From<HostClient> for Hosts {
    fn from(client: HostClient) -> Self {
        let meter = client.meter().clone();
        Self::outside_jobs(vec![HostDescription::given(client)], meter, None)
    }
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hosts({})", self.names())
    }
}
