//! A planner beside a running job, and the hosts' profile that it may still lack.

use super::measure::profiles;
use crate::plan::Candidate;
use crate::planner::{Change, Iteration, Planner};
use crate::{Event, Events, Hosts, ProfileState};
use frostline_batching::Backoff;
use frostline_wire::{Profile, ProfileRequest};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

/// Between two attempts to have a profile beside a running job: a host that was too busy will not be idle within seconds, and what
/// the job takes more until then is little beside what a profile takes from its neighbours.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(600);

/// Watches a split while the job runs.
pub(crate) struct Watch {
    planner: Planner,
    /// Away where the hosts were measured before the start, or never will be.
    late: Option<Late>,
    /// Whether the hosts are taken to be like this machine.
    guessed: bool,
    events: Events,
}

impl Watch {
    /// By a plan that rests on measurements.
    pub(crate) fn measured(planner: Planner, events: &Events) -> Self {
        Self {
            planner,
            late: None,
            guessed: false,
            events: events.clone(),
        }
    }

    /// By a guess, until the hosts' profile comes.
    pub(crate) fn guessed(planner: Planner, late: Option<Late>, events: &Events) -> Self {
        Self {
            late,
            guessed: true,
            ..Self::measured(planner, events)
        }
    }

    /// The planner, if it rests on measurements.
    pub(crate) fn plan(&self) -> Option<&Planner> {
        (!self.guessed).then_some(&self.planner)
    }

    /// Takes in an iteration and says whether to change the split; `left` iterations are to come.
    pub(crate) fn saw(&mut self, iteration: &Iteration, left: u64) -> Option<Change> {
        if let Some(profile) = self.late.as_mut().and_then(Late::came) {
            (self.late, self.guessed) = (None, false);
            let reason = format!(
                "the hosts' profile is there (measured in {:.1} s): the plan rests on it from now on",
                profile.measured_in_seconds
            );
            self.planner.profiled(profile);
            (self.events)(Event::Profile {
                state: ProfileState::Measured,
                reason,
            });
        }
        self.planner.saw(iteration, left)
    }

    /// The job goes on with this candidate.
    pub(crate) fn start(&mut self, candidate: Candidate) {
        self.planner.start(candidate);
    }
}

/// A profile that was not to be had when the job began, and is asked for again beside it. Ends when it is dropped.
pub(crate) struct Late {
    coming: oneshot::Receiver<Profile>,
    _asking: AbortOnDropHandle<()>,
}

impl Late {
    /// Asks `hosts` again and again, now and then.
    pub(crate) fn ask(hosts: &Hosts, request: ProfileRequest) -> Self {
        Self::ask_after(Backoff::new(FIRST, LONGEST), hosts, request)
    }

    /// [`Late::ask`] with these pauses.
    pub(crate) fn ask_after(mut pauses: Backoff, hosts: &Hosts, request: ProfileRequest) -> Self {
        let (sender, coming) = oneshot::channel();
        let hosts = hosts.clone();
        let asking = tokio::spawn(async move {
            let profile = loop {
                tokio::time::sleep(pauses.wait()).await;
                if !are_free(&hosts).await {
                    continue;
                }
                if let (Some(profile), _) = profiles(&hosts, &request).await {
                    break profile;
                }
            };
            // A job that has ended meanwhile needs none.
            let _ = sender.send(profile);
        });
        Self {
            coming,
            _asking: AbortOnDropHandle::new(asking),
        }
    }

    /// The profile, once.
    pub(crate) fn came(&mut self) -> Option<Profile> {
        self.coming.try_recv().ok()
    }
}

/// Whether nobody waits at any host, so that a profile would not wait either.
async fn are_free(hosts: &Hosts) -> bool {
    let loads = hosts.all(|client| async move { client.load().await });
    let loads = loads.await;
    loads
        .iter()
        .all(|load| load.as_ref().is_ok_and(|load| load.queued == 0))
}
