//! A plan is kept true while its job runs: every step corrects what was measured before the first, and where another split would save
//! enough of what is left, the job goes on from there.

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
