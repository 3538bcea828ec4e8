use super::awaited::AwaitedProfile;
use super::observed::Iteration;
use super::replanner::{Change, Replanner};
use crate::plan::{Candidate, Planner};
use crate::{Event, Events, ProfileState};

/// Watches a split while the job runs.
pub(crate) struct Watch {
    replanner: Replanner,
    /// `None` if the hosts were measured before the start, or never will be.
    awaited: Option<AwaitedProfile>,
    /// Whether the hosts are taken to be like this machine.
    guessed: bool,
    events: Events,
}

impl Watch {
    /// By measurements, of a job that begins with the candidate `first`.
    pub(crate) fn measured(planner: Planner, first: Candidate, events: &Events) -> Self {
        Self {
            replanner: Replanner::new(planner, first),
            awaited: None,
            guessed: false,
            events: events.clone(),
        }
    }

    /// By a guess, until the hosts' profile comes.
    pub(crate) fn guessed(
        planner: Planner,
        first: Candidate,
        awaited: Option<AwaitedProfile>,
        events: &Events,
    ) -> Self {
        Self {
            awaited,
            guessed: true,
            ..Self::measured(planner, first, events)
        }
    }

    /// The planner, if it rests on measurements.
    pub(crate) fn planner(&self) -> Option<&Planner> {
        (!self.guessed).then_some(self.replanner.planner())
    }

    /// How many of the job's iterations still fetch once `done` are over: the others take kept rows.
    pub(crate) fn fetching_after(&self, done: u64) -> u64 {
        self.replanner.fetching_after(done)
    }

    /// Adds an iteration that fetched all of its rows, and decides whether to change the split; `left` iterations that fetch are to come.
    pub(crate) fn saw(&mut self, iteration: &Iteration, left: u64) -> Option<Change> {
        if let Some(profile) = self.awaited.as_mut().and_then(AwaitedProfile::came) {
            (self.awaited, self.guessed) = (None, false);
            let reason = format!(
                "profile received from the hosts (measured in {:.1} s); the plan uses it from now on",
                profile.measured_in_seconds
            );
            self.replanner.profiled(profile);
            (self.events)(Event::Profile {
                state: ProfileState::Measured,
                reason,
            });
        }
        self.replanner.saw(iteration, left)
    }

    /// The job changed to this candidate.
    pub(crate) fn start(&mut self, candidate: Candidate) {
        self.replanner.start(candidate);
    }
}
