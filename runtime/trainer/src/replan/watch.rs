use super::awaited::AwaitedProfile;
use crate::{Event, Events, ProfileState};
use frostline_plan::{Candidate, Change, Iteration, Planner, Replanner};

/// Monitors the split while the job runs.
pub(crate) struct Watch {
    replanner: Replanner,
    /// `None` if the hosts were already measured or cannot be measured.
    pub(crate) awaited: Option<AwaitedProfile>,
    /// True if the hosts are assumed to be like this machine until their profile is received.
    pub(crate) guessed: bool,
    events: Events,
}

impl Watch {
    /// Creates a monitor with measured profiles. The job starts with the candidate `first`.
    pub(crate) fn new(planner: Planner, first: Candidate, events: &Events) -> Self {
        Self {
            replanner: Replanner::new(planner, first),
            awaited: None,
            guessed: false,
            events: events.clone(),
        }
    }

    /// Returns the planner if it is based on measurements.
    pub(crate) fn planner(&self) -> Option<&Planner> {
        (!self.guessed).then_some(self.replanner.planner())
    }

    /// Returns the number of iterations that still fetch after `done` iterations. The others use cached
    /// features.
    pub(crate) fn fetching_after(&self, done: u64) -> u64 {
        self.replanner.fetching_after(done)
    }

    /// Adds an iteration that fetched all activations, and decides whether to change the split. `left` is the
    /// number of remaining iterations that fetch.
    pub(crate) fn observe(&mut self, iteration: &Iteration, left: u64) -> Option<Change> {
        if let Some(profile) = self.awaited.as_mut().and_then(AwaitedProfile::try_receive) {
            (self.awaited, self.guessed) = (None, false);
            let reason = format!(
                "profile received from the hosts (measured in {:.1} s); the plan now uses it",
                profile.measured_in_seconds
            );
            self.replanner.replace_host_profile(profile);
            (self.events)(Event::Profile {
                state: ProfileState::Measured,
                reason,
            });
        }
        self.replanner.observe(iteration, left)
    }

    /// Records that the job changed to this candidate.
    pub(crate) fn start(&mut self, candidate: Candidate) {
        self.replanner.start(candidate);
    }
}
