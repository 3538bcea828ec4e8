//! Replanning while a job runs. The decisions are in `frostline-plan`; this module requests missing profiles from
//! the hosts.

mod awaited;
mod watch;

pub(crate) use awaited::AwaitedProfile;
pub(crate) use watch::Watch;
