//! Hosts that join and leave a job according to a DNS name.

use super::description::HostDescription;
use super::discovery::Discovery;
use super::fleet::Fleet;
use super::{Hosts, Member};
use crate::meter::ByteMeter;
use crate::{ClientError, Deadlines, HostClient, Token, Trust};
use futures::future::join_all;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Interval between DNS lookups. Changes are detected about as soon as DNS propagates them, at little load
/// for the resolver.
const AGAIN: Duration = Duration::from_secs(10);

/// Timeout for the names of hosts at the start. A host that does not answer within this time joins in the
/// background.
const FIRST: Duration = Duration::from_secs(5);

impl Hosts {
    /// Connects to the hosts at `urls`: one or more host addresses, or a single DNS name. `dns://name:8443`
    /// (`dns+http://` without TLS) refers to all addresses of the name, and a job ([`Hosts::for_job`])
    /// follows changes. The certificates must be valid for the name.
    ///
    /// # Errors
    /// Returns [`ClientError::Address`] in the cases of [`Hosts::new`] and if `urls` contains a DNS name and
    /// other addresses, [`ClientError::Unreachable`] if the name has no addresses, and the errors of
    /// [`HostClient::with`].
    pub async fn connect(
        urls: &[String],
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Self, ClientError> {
        for url in urls {
            let discovery = Discovery::new(url, token.clone(), trust, deadlines)?;
            match discovery {
                Some(discovery) if urls.len() == 1 => return Self::discover(discovery).await,
                Some(_) => {
                    let reason = "a DNS name must be the only address; remove the others";
                    return Err(ClientError::address(url, reason));
                }
                None => {}
            }
        }
        let clients = urls
            .iter()
            .map(|url| HostClient::with(url, token.clone(), trust, deadlines))
            .collect::<Result<Vec<_>, _>>()?;
        match <[HostClient; 1]>::try_from(clients) {
            Ok([only]) => Ok(only.into()),
            Err(several) => Self::new(several),
        }
    }

    /// Resolves the DNS name and asks the hosts for names.
    pub(super) async fn discover(discovery: Discovery) -> Result<Self, ClientError> {
        let addresses = discovery.addresses().await?;
        let known = addresses.into_iter().map(|address| known(&discovery, address));
        let known = join_all(known.collect::<Result<Vec<_>, _>>()?.into_iter().map(introduced)).await;
        let discovery = Some(Arc::new(discovery));
        Ok(Self::outside_jobs(known, ByteMeter::default(), discovery))
    }

    /// [`Hosts::connect`] with a custom lookup.
    #[cfg(test)]
    pub(crate) async fn found_by(url: &str, lookup: super::Lookup) -> Result<Self, ClientError> {
        let discovery = Discovery::new(url, None, &Trust::default(), Deadlines::default())?;
        let discovery = discovery.ok_or(ClientError::Ended { part: "name" })?;
        Self::discover(discovery.with(lookup)).await
    }

    /// Repeats the lookup.
    #[cfg(test)]
    pub(crate) async fn look_again(&self) {
        if let Some(discovery) = &self.fleet.discovery {
            let found = discovery.addresses().await;
            self.fleet.apply_lookup(discovery, found);
        }
    }
}

/// Creates a host that has not joined.
fn known(discovery: &Discovery, address: SocketAddr) -> Result<HostDescription, ClientError> {
    Ok(HostDescription {
        client: discovery.client(address)?,
        name: None,
        from_dns: true,
        up: false,
    })
}

/// Asks a host for a name. A host that answers may be used immediately.
async fn introduced(mut known: HostDescription) -> HostDescription {
    if let Ok(Ok(load)) = timeout(FIRST, known.client.load()).await {
        known.name = load.name.map(Into::into);
        known.up = true;
    }
    known
}

impl Fleet {
    /// Starts to follow the DNS name, if there is one.
    pub(super) fn follow(self: &Arc<Self>) {
        let (Some(discovery), Ok(runtime)) = (&self.discovery, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let discovery = Arc::clone(discovery);
        let fleet = Arc::downgrade(self);
        let following = runtime.spawn(follow(discovery, fleet));
        *self.following.lock() = Some(AbortOnDropHandle::new(following));
    }

    /// Returns true if there are hosts other than those that were `asked`. Repeats the DNS lookup, unless the
    /// hosts have no DNS name or `looked` is set.
    pub(super) async fn others(&self, asked: &[Arc<Member>], looked: &mut bool) -> bool {
        let Some(discovery) = self.discovery.as_ref().filter(|_| !*looked) else {
            return false;
        };
        *looked = true;
        self.apply_lookup(discovery, discovery.addresses().await);
        !self
            .members()
            .iter()
            .all(|member| asked.iter().any(|known| known.index == member.index))
    }

    /// Adds hosts found by a lookup and removes members rejected by [`Member::is_named`]. Failed lookups do
    /// not change the members. In both cases, checks hosts that have been unavailable long enough.
    pub(super) fn apply_lookup(
        &self,
        discovery: &Discovery,
        found: Result<BTreeSet<SocketAddr>, ClientError>,
    ) {
        // An error of the lookup is not reported. If the hosts fail as well, their errors are.
        if let Ok(found) = found {
            let urls: BTreeSet<String> = found.iter().map(|address| discovery.url_of(*address)).collect();
            let here: BTreeSet<String> = self
                .members()
                .iter()
                .map(|member| member.url().to_owned())
                .collect();
            let new = found.into_iter();
            let new = new.filter(|address| !here.contains(&discovery.url_of(*address)));
            let join = new.filter_map(|address| known(discovery, address).ok()).collect();
            for gone in self.change(|member| member.is_named(urls.contains(member.url())), join) {
                gone.left(format!("{} no longer resolves to this address", discovery.url()));
            }
        }
        self.check_due();
    }
}

async fn follow(discovery: Arc<Discovery>, fleet: Weak<Fleet>) {
    loop {
        let found = discovery.addresses().await;
        let Some(fleet) = fleet.upgrade() else { return };
        fleet.apply_lookup(&discovery, found);
        drop(fleet);
        sleep(AGAIN).await;
    }
}
