//! Hosts that join and leave a job, as their name says.

use super::discovery::Discovery;
use super::fleet::{Fleet, Known};
use super::{Hosts, Member, Waits};
use crate::client::unheard;
use crate::meter::ByteMeter;
use crate::{ClientError, Deadlines, HostClient, Token, Trust};
use futures::future::join_all;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// How often a name is looked up: what joins or leaves is known as soon as DNS itself usually knows, and a resolver hardly notices.
const AGAIN: Duration = Duration::from_secs(10);

/// How long hosts are waited for at the start to say what they are called. Who takes longer joins later.
const FIRST: Duration = Duration::from_secs(5);

impl Hosts {
    /// The hosts at `urls`: of one, of several, or of a name: `dns://name:8443` (`dns+http://` without TLS) stands for all of its addresses,
    /// and a job ([`Hosts::for_job`]) goes on with those that it has by then. Their certificate is to be the name's.
    ///
    /// # Errors
    /// [`ClientError::Address`] as for [`Hosts::new`], and where a name is not the only one; [`ClientError::Unreachable`] for a name
    /// without addresses; those of [`HostClient::with`].
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
                    return Err(ClientError::Address {
                        url: url.clone(),
                        reason: "it stands for all hosts of its name; name no other beside it".into(),
                    });
                }
                None => {}
            }
        }
        let client = |url: &String| HostClient::with(url, token.clone(), trust, deadlines);
        let clients = urls.iter().map(client).collect::<Result<Vec<_>, _>>()?;
        match <[HostClient; 1]>::try_from(clients) {
            Ok([only]) => Ok(only.into()),
            Err(several) => Self::new(several),
        }
    }

    /// Those that are there now, with what they are called.
    pub(super) async fn discover(discovery: Discovery) -> Result<Self, ClientError> {
        let addresses = discovery.addresses().await?;
        let known = addresses.into_iter().map(|address| known(&discovery, address));
        let known = join_all(known.collect::<Result<Vec<_>, _>>()?.into_iter().map(introduced)).await;
        let mut fleet = Fleet::new(known, None, ByteMeter::default(), unheard(), Waits::default());
        fleet.discovery = Some(Arc::new(discovery));
        Ok(Self::from_fleet(fleet))
    }

    /// Those of a name that is looked up so.
    #[cfg(test)]
    pub(crate) async fn found_by(url: &str, lookup: super::Lookup) -> Result<Self, ClientError> {
        let discovery = Discovery::new(url, None, &Trust::System, Deadlines::default())?;
        let discovery = discovery.ok_or(ClientError::Ended { part: "name" })?;
        Self::discover(discovery.with(lookup)).await
    }

    /// Looks once more who is there.
    #[cfg(test)]
    pub(crate) async fn look_again(&self) {
        if let Some(discovery) = &self.fleet.discovery {
            let found = discovery.addresses().await;
            self.fleet.follows(discovery, found);
        }
    }
}

/// A host that has yet to join.
fn known(discovery: &Discovery, address: SocketAddr) -> Result<Known, ClientError> {
    Ok(Known {
        client: discovery.client(address)?,
        name: None,
        found: true,
        up: false,
    })
}

/// Asks a host what it is called; it is used from then on.
async fn introduced(mut known: Known) -> Known {
    if let Ok(Ok(name)) = timeout(FIRST, known.client.name()).await {
        known.name = name.map(Into::into);
        known.up = true;
    }
    known
}

impl Fleet {
    /// Looks up who joins and leaves from now on, where there is a name to look up.
    pub(super) fn follow(self: &Arc<Self>) {
        let (Some(discovery), Ok(runtime)) = (&self.discovery, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (discovery, fleet) = (Arc::clone(discovery), Arc::downgrade(self));
        let following = runtime.spawn(follow(discovery, fleet));
        *self.following.lock() = Some(AbortOnDropHandle::new(following));
    }

    /// Whether there are other hosts now than those that were `asked`: their name is looked up for that, where they have one and it was not
    /// `looked` up before.
    pub(super) async fn others(&self, asked: &[Arc<Member>], looked: &mut bool) -> bool {
        let Some(discovery) = self.discovery.as_ref().filter(|_| !*looked) else {
            return false;
        };
        *looked = true;
        self.follows(discovery, discovery.addresses().await);
        let known = |member: &Arc<Member>| asked.iter().any(|known| known.index == member.index);
        !self.members().iter().all(known)
    }

    /// Goes on with who was found; where that failed, with those that it has.
    pub(super) fn follows(&self, discovery: &Discovery, found: Result<BTreeSet<SocketAddr>, ClientError>) {
        // What is wrong with the name is told by those hosts that fail, if any does.
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
            let stays = |member: &Member| member.is_named(urls.contains(member.url()));
            for gone in self.change(stays, join) {
                gone.left(format!("it is no longer an address of {}", discovery.url()));
            }
        }
        self.check_due();
    }
}

async fn follow(discovery: Arc<Discovery>, fleet: Weak<Fleet>) {
    loop {
        let found = discovery.addresses().await;
        let Some(fleet) = fleet.upgrade() else { return };
        fleet.follows(&discovery, found);
        drop(fleet);
        sleep(AGAIN).await;
    }
}
