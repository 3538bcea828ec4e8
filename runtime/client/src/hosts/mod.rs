//! Several hosts that serve the same data: which one is asked for what, and which of them are up.

mod discovery;
mod fleet;
mod health;
mod member;
mod membership;
mod placement;
mod restart;

#[cfg(test)]
pub(crate) use discovery::Lookup;
pub(crate) use health::Waits;
#[cfg(test)]
pub(crate) use member::MISSING;
pub(crate) use member::Member;
pub(crate) use placement::Placement;
pub use placement::place;

use crate::client::unheard;
use crate::meter::ByteMeter;
use crate::retry::Seen;
use crate::trace::Trace;
use crate::{ClientError, HostClient, Listing, Notice, Notices, UploadKind, Uploaded};
use bytes::Bytes;
use fleet::{Fleet, Known};
use frostline_wire::StageSeconds;
use frostline_wire::{Description, DescriptionRequest, Layout, LeftOut, ModelInfo, Pin};
use futures::future::join_all;
use member::Upload;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// One or more hosts that serve the same data to the same tenant. Clones share what is known about them.
#[derive(Clone)]
pub struct Hosts {
    fleet: Arc<Fleet>,
    meter: ByteMeter,
}

impl Hosts {
    /// Several hosts; which objects are asked of which depends on their addresses, not on their order.
    ///
    /// # Errors
    /// [`ClientError::Address`] when there are none, or one is there twice.
    pub fn new(clients: Vec<HostClient>) -> Result<Self, ClientError> {
        let mut seen = BTreeSet::new();
        let refused = |url: &str, reason: &str| ClientError::Address {
            url: url.to_owned(),
            reason: reason.into(),
        };
        if clients.is_empty() {
            return Err(refused("", "there must be at least one host"));
        }
        if let Some(twice) = clients.iter().find(|client| !seen.insert(client.url())) {
            return Err(refused(twice.url(), "it is given twice; name each host once"));
        }
        let known = clients.into_iter().map(Known::given).collect();
        Ok(Self::from_fleet(Fleet::new(
            known,
            None,
            ByteMeter::default(),
            unheard(),
            Waits::default(),
        )))
    }

    /// Body bytes received from all of them through this value and its clones, whatever became of them.
    pub fn bytes_received(&self) -> u64 {
        self.meter.bytes()
    }

    fn from_fleet(fleet: Fleet) -> Self {
        Self {
            meter: fleet.meter.clone(),
            fleet: Arc::new(fleet),
        }
    }

    /// The same hosts for one job: `notices` is told when one goes down or comes back and what else happens, and its bytes are counted
    /// from zero, and here too. Nothing is known of them yet. Where they are those of a name, the job goes on with those that it has by then.
    pub fn for_job(&self, notices: Notices) -> Self {
        self.for_job_with(notices, Waits::default())
    }

    pub(crate) fn for_job_with(&self, notices: Notices, waits: Waits) -> Self {
        let known = self.fleet.members().iter().map(|member| member.known()).collect();
        let trace = Trace::of_job();
        if let Some(trace) = &trace {
            tracing::info!(
                trace = trace.id(),
                "what the job asks of hosts belongs to this trace"
            );
        }
        let mut fleet = Fleet::new(known, trace, self.meter.child(), notices, waits);
        fleet.discovery.clone_from(&self.fleet.discovery);
        let hosts = Self::from_fleet(fleet);
        hosts.fleet.follow();
        hosts
    }

    /// These hosts with a count of its own, which starts at zero; its bytes count here too.
    pub fn metered(&self) -> Self {
        Self {
            fleet: Arc::clone(&self.fleet),
            meter: self.meter.child(),
        }
    }

    /// What the hosts have shown of themselves until now.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            answers: self.fleet.answers(),
            now: tokio::time::Instant::now(),
        }
    }

    /// Counts where the time of an answer's images went, as its host says.
    pub(crate) fn count_stages(&self, member: &Member, seconds: StageSeconds) {
        let mut stages = self.fleet.stages.lock();
        *stages.entry(member.url().to_owned()).or_default() += seconds;
    }

    /// Where the time of the images went that each host answered, by its address; of hosts that do not say, nothing.
    pub fn stage_seconds(&self) -> Vec<(String, StageSeconds)> {
        let stages = self.fleet.stages.lock();
        let said = stages.iter().filter(|(_, seconds)| !seconds.shares().is_empty());
        said.map(|(host, seconds)| (host.clone(), *seconds)).collect()
    }

    /// Tells whoever hears of the job.
    pub(crate) fn notify(&self, notice: Notice) {
        (self.fleet.notices)(notice);
    }

    /// A client of one of them that counts here.
    pub(crate) fn client(&self, member: &Member) -> HostClient {
        member.client.counting_into(&self.meter)
    }

    /// All of them, whether they are up or not.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        self.fleet.members()
    }

    /// Their addresses, for people.
    pub(crate) fn names(&self) -> String {
        let members = self.fleet.members();
        let names: Vec<&str> = members.iter().map(|member| member.url()).collect();
        names.join(", ")
    }

    /// A client of each, whether it answers or not.
    pub fn clients(&self) -> Vec<HostClient> {
        let members = self.fleet.members();
        members.iter().map(|member| self.client(member)).collect()
    }

    /// Whether all are reached over loopback, and so most likely are this machine.
    pub fn are_loopback(&self) -> bool {
        let members = self.fleet.members();
        members.iter().all(|member| member.client.is_loopback())
    }

    /// The hosts that may be asked now: those that are up, or all where none is; without those `tried`. Hosts that were down for long
    /// enough are checked meanwhile.
    pub(crate) fn candidates(&self, tried: &BTreeSet<usize>) -> Vec<Arc<Member>> {
        self.fleet.check_due();
        let mut usable = self.fleet.usable();
        usable.retain(|member| !tried.contains(&member.index));
        usable
    }

    /// Whether a host that was a candidate still is.
    pub(crate) fn may_be_asked(&self, host: &Member) -> bool {
        let members = self.fleet.members();
        let there = members.iter().any(|member| member.index == host.index);
        there && (host.is_up() || members.iter().all(|member| !member.is_up()))
    }

    /// All samples under `root`, which is laid out as `layout`, from the first host that answers; what it left out is told.
    ///
    /// # Errors
    /// As [`Hosts::first`].
    pub async fn listing(&self, root: &str, layout: Layout) -> Result<Listing, ClientError> {
        let listing = self.first(|client| async move { client.listing(root, layout).await });
        let listing = listing.await?;
        let LeftOut { count, names, links } = listing.no_keys.clone();
        if count > 0 {
            self.notify(Notice::NoKeys { count, names });
        }
        if !links.is_empty() {
            self.notify(Notice::OutwardLinks { links });
        }
        Ok(listing)
    }

    /// The name under which every host has the model with this hash; `None` where one has not, or cannot be asked.
    pub async fn name_of(&self, sha256: &str) -> Option<String> {
        let all = self.each(|client| async move { client.models_like(sha256).await });
        let all = all.await.ok()?;
        let names = |models: &Vec<ModelInfo>| -> BTreeSet<String> {
            let like = models.iter().filter(|model| model.sha256 == sha256);
            like.map(|model| model.name.clone()).collect()
        };
        let everywhere = all.iter().map(names).reduce(|one, other| &one & &other)?;
        let asked = all.len() == self.fleet.members().len();
        everywhere.into_iter().next().filter(|_| asked)
    }

    /// What a guest does for a model, from the first host that answers.
    ///
    /// # Errors
    /// As [`Hosts::first`].
    pub async fn describe(&self, request: &DescriptionRequest) -> Result<Description, ClientError> {
        self.first(|client| async move { client.describe(request).await })
            .await
    }

    /// Uploads a guest or a model to every host that has not these very bytes under this name; to those that are down, once they are
    /// back.
    ///
    /// # Errors
    /// As [`Hosts::each`].
    pub async fn push(&self, what: UploadKind, name: &str, bytes: Bytes) -> Result<Uploaded, ClientError> {
        let name = name.to_owned();
        self.give(Upload {
            what,
            name,
            bytes,
            found: None,
        })
        .await
    }

    /// The same for a model that they have by [`Hosts::name_of`]: it is sent to none that has a version with this hash under this name, but
    /// to those that join later without it.
    ///
    /// # Errors
    /// As [`Hosts::push`].
    pub async fn keep(&self, model: &Pin, bytes: Bytes) -> Result<Uploaded, ClientError> {
        self.give(Upload {
            what: UploadKind::Model,
            name: model.name.clone(),
            bytes,
            found: Some(model.sha256.clone()),
        })
        .await
    }

    async fn give(&self, upload: Upload) -> Result<Uploaded, ClientError> {
        let _one = self.fleet.pushing.lock().await;
        self.fleet.give(upload);
        let all = self.each_member(|member| async move { member.catch_up().await });
        let all = all.await.inspect_err(|_| self.fleet.withdraw())?;
        let mut last = all.into_iter().filter_map(|mut uploaded| uploaded.pop());
        let first = last.next().ok_or(ClientError::Ended { part: "upload" })?;
        let skipped = first.skipped && last.all(|uploaded| uploaded.skipped);
        Ok(Uploaded { skipped, ..first })
    }

    /// Asks one host after the other until one answers. Hosts that answered this job before and are all gone are waited for; those that
    /// never did are not.
    ///
    /// # Errors
    /// The first refusal that asking elsewhere does not change; [`ClientError::NoHost`] when none of several answers.
    pub async fn first<T, F>(&self, work: impl Fn(HostClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (mut awaited, mut looked) = (None, false);
        loop {
            let (mut last, seen, asked) = (None, self.seen(), self.fleet.usable());
            for member in &asked {
                let begun = Instant::now();
                match work(self.client(member)).await {
                    Ok(answer) => {
                        member.did_well(begun);
                        self.is_back(awaited);
                        return Ok(answer);
                    }
                    Err(error) => last = Some(telling(last, self.leave_out(member, error)?)),
                }
            }
            if last.as_ref().is_some_and(ClientError::may_pass)
                && self.fleet.others(&asked, &mut looked).await
            {
                continue;
            }
            self.await_return(&mut awaited, last, seen).await?;
        }
    }

    /// Does the same at every host that is up, at once, and returns what those brought that did not fail.
    ///
    /// # Errors
    /// As [`Hosts::first`].
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
        let (mut awaited, mut looked) = (None, false);
        loop {
            let (asked, seen, begun) = (self.fleet.usable(), self.seen(), Instant::now());
            let answers = join_all(asked.iter().map(|member| work(Arc::clone(member)))).await;
            let (mut brought, mut last) = (Vec::new(), None);
            for (member, answer) in asked.iter().zip(answers) {
                match answer {
                    Ok(answer) => {
                        member.did_well(begun);
                        brought.push(answer);
                    }
                    Err(error) => last = Some(telling(last, self.leave_out(member, error)?)),
                }
            }
            if !brought.is_empty() {
                self.is_back(awaited);
                return Ok(brought);
            }
            if last.as_ref().is_some_and(ClientError::may_pass)
                && self.fleet.others(&asked, &mut looked).await
            {
                continue;
            }
            self.await_return(&mut awaited, last, seen).await?;
        }
    }

    /// Asks every host that is up, at once, and leaves it to the caller what their failures mean.
    pub async fn all<T, F>(&self, work: impl Fn(HostClient) -> F) -> Vec<Result<T, ClientError>>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let asked = self.fleet.usable();
        join_all(asked.iter().map(|member| work(self.client(member)))).await
    }

    /// Goes on without a host if others may do better; a busy one is well.
    fn leave_out(&self, member: &Member, error: ClientError) -> Result<ClientError, ClientError> {
        if error.may_pass() {
            member.failed(&error);
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

/// Of two failures of hosts the one to go by: one that stops is waited for, whatever others are.
fn telling(before: Option<ClientError>, error: ClientError) -> ClientError {
    let stopping = before.filter(|before| before.is_stopping() && !error.is_stopping());
    stopping.unwrap_or(error)
}

impl From<HostClient> for Hosts {
    fn from(client: HostClient) -> Self {
        let meter = client.meter().clone();
        let known = vec![Known::given(client)];
        Self::from_fleet(Fleet::new(known, None, meter, unheard(), Waits::default()))
    }
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hosts({})", self.names())
    }
}
