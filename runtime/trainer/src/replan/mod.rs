//! Replanning while a job runs: every step corrects the measurements, and the job changes to another split if
//! this saves enough of the remaining time or cost.

mod awaited;
mod observed;
mod recent;
mod replanner;
mod watch;

pub(crate) use awaited::AwaitedProfile;
pub(crate) use observed::Iteration;
#[cfg(test)]
pub(crate) use replanner::Replanner;
pub(crate) use watch::Watch;
