//! Why a request is not carried out, whatever asked for it.

use frostline_graph::GraphError;
use frostline_objects::ObjectError;
use frostline_profile::ProfileError;
use frostline_sandbox::{Resource, SandboxError};
use frostline_tensor::{OpError, OpErrorCode};
use frostline_wire::{ErrorClass, FrameError, QuotaKey};
use std::time::Duration;
use tokio::task::JoinError;

/// When to come back who found no room in the midst of its work: lanes and memory come free within runs, which take seconds.
const ROOM_AGAIN: Duration = Duration::from_secs(2);

/// Why a request is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// No valid token.
    #[error(
        "this host wants 'Authorization: Bearer <token>' with a tenant's token; whoever runs the host has it"
    )]
    Unauthorized,
    /// A token that was valid.
    #[error(
        "this token expired at {at} (seconds since 1970); ask whoever runs the host for another (frostline admin tenant rotate)"
    )]
    Expired { at: u64 },
    /// A tenant that may do nothing.
    #[error("this tenant is disabled on this host; ask whoever runs it")]
    Disabled,
    /// A guest that may not run.
    #[error(
        "the guest {guest:?} is disabled on this host; whoever runs the host can enable it (frostline admin guest enable {tenant}/{guest})"
    )]
    GuestDisabled { tenant: String, guest: String },
    /// The request cannot be right.
    #[error("{message}")]
    Request { message: String },
    /// No such route.
    #[error("this host has no {path}; its interface is under /v1")]
    Route { path: String },
    /// The route knows no such method.
    #[error("{method} is not for this address")]
    Method { method: String },
    /// Nothing of that name.
    #[error("{message}")]
    NotFound { message: String },
    /// The name is there, with other content than was pinned.
    #[error("{message}")]
    OtherVersion { message: String },
    /// An upload that goes on somewhere else than it broke off.
    #[error("this host has {has} bytes of that upload; go on there")]
    Offset { has: u64 },
    /// Over a limit that waiting does not lift.
    #[error("{what} has {bytes} bytes, this host takes at most {limit}")]
    TooLarge { what: String, bytes: u64, limit: u64 },
    /// More memory than the host may ever have for it.
    #[error("{message}")]
    Memory { message: String },
    /// Over a quota that waiting does not lift.
    #[error(
        "{tenant} may use {limit} of {key} here, and this would take {wanted}; whoever runs this host can raise it (frostline admin quota set \
         {tenant} {key}=<number>)"
    )]
    Quota {
        tenant: String,
        key: QuotaKey,
        wanted: u64,
        limit: u64,
    },
    /// A body that stalled.
    #[error(
        "nothing, or next to nothing, of the request's body came for {seconds} s; an upload can go on where it broke off"
    )]
    Stalled { seconds: u64 },
    /// All permits are taken.
    #[error("{message}")]
    Busy { message: String, retry_after: Duration },
    /// The host is shutting down.
    #[error("this host is shutting down; ask another, or again when it is back")]
    Stopping,
    /// The request took longer than it may.
    #[error("the request was not done after {seconds} s, the longest this host allows")]
    Deadline { seconds: u64 },
    /// The guest failed.
    #[error("{message}")]
    Guest { message: String },
    /// The host failed.
    #[error("{message}")]
    Host { message: String },
}

impl Refusal {
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::Request {
            message: message.into(),
        }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound {
            message: message.into(),
        }
    }

    pub(crate) fn busy(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::Busy {
            message: message.into(),
            retry_after,
        }
    }

    pub(crate) fn host(message: impl std::fmt::Display) -> Self {
        Self::Host {
            message: message.to_string(),
        }
    }

    /// What the host could not do for reasons of its own: it has no room now, or something of it failed, which another host may do better.
    fn of_host(error: &OpError, message: String) -> Self {
        match error.code {
            OpErrorCode::TooLarge | OpErrorCode::Timeout => Self::busy(message, ROOM_AGAIN),
            // A store that knows its host no longer: whoever runs it has to do something first.
            OpErrorCode::Security => Self::Request { message },
            _ => Self::Host { message },
        }
    }

    /// What a tenant's guest failed by; where it went over a quota, how that is raised.
    pub(crate) fn extraction(error: SandboxError, tenant: &str) -> Self {
        let SandboxError::Limit { resource, .. } = &error else {
            return error.into();
        };
        let key = match resource {
            Resource::TensorBytes => QuotaKey::TensorBytes,
            Resource::ObjectReads => QuotaKey::ObjectReads,
            Resource::ObjectBytes => QuotaKey::ObjectBytes,
            Resource::OutputBytes => QuotaKey::OutputBytes,
            Resource::LogBytes => QuotaKey::LogBytes,
            Resource::CpuMillis => QuotaKey::CpuSeconds,
            Resource::Memory | Resource::TableElements | Resource::Handles | Resource::SliceMillis => {
                return error.into();
            }
        };
        Self::Guest {
            message: format!("{error} (frostline admin quota set {tenant} {key}=<number>)"),
        }
    }

    /// What a client can do about it.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Unauthorized | Self::Expired { .. } | Self::Disabled | Self::GuestDisabled { .. } => {
                ErrorClass::Unauthorized
            }
            Self::Request { .. } | Self::Route { .. } | Self::Method { .. } | Self::Offset { .. } => {
                ErrorClass::Request
            }
            Self::NotFound { .. } | Self::OtherVersion { .. } => ErrorClass::NotFound,
            Self::TooLarge { .. } | Self::Memory { .. } | Self::Quota { .. } => ErrorClass::TooLarge,
            Self::Busy { .. } => ErrorClass::Busy,
            Self::Stopping => ErrorClass::Stopping,
            Self::Guest { .. } => ErrorClass::Guest,
            Self::Stalled { .. } | Self::Deadline { .. } | Self::Host { .. } => ErrorClass::Host,
        }
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        let message = error.to_string();
        match error {
            SandboxError::GuestTooLarge { bytes, allowed } => Self::TooLarge {
                what: "the guest".to_owned(),
                bytes: bytes as u64,
                limit: allowed as u64,
            },
            SandboxError::NotAGuest { .. }
            | SandboxError::TooComplex { .. }
            | SandboxError::TooCostly { .. }
            | SandboxError::OtherWorld { .. }
            | SandboxError::NotServed { .. } => Self::Request { message },
            SandboxError::PrepareDeadline { after } | SandboxError::Busy { after } => Self::Busy {
                message,
                retry_after: after.clamp(Duration::from_secs(1), Duration::from_secs(10)),
            },
            SandboxError::Host { .. } => Self::Host { message },
            SandboxError::HostOperation { error } => Self::of_host(&error, message),
            _ => Self::Guest { message },
        }
    }
}

/// Work on a thread of its own was lost.
impl From<JoinError> for Refusal {
    fn from(lost: JoinError) -> Self {
        Self::host(format!("work for a request was lost: {lost}"))
    }
}

impl From<GraphError> for Refusal {
    fn from(error: GraphError) -> Self {
        Self::Request {
            message: error.to_string(),
        }
    }
}

impl From<ObjectError> for Refusal {
    fn from(error: ObjectError) -> Self {
        Self::from(OpError::from(error))
    }
}

impl From<OpError> for Refusal {
    fn from(error: OpError) -> Self {
        if error.host_caused {
            let message = error.message.clone();
            return Self::of_host(&error, message);
        }
        let message = error.message;
        match error.code {
            OpErrorCode::NotFound => Self::NotFound { message },
            OpErrorCode::RuntimeError | OpErrorCode::Timeout | OpErrorCode::Unknown => Self::Host { message },
            _ => Self::Request { message },
        }
    }
}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Self {
        Self::host(error)
    }
}

impl From<ProfileError> for Refusal {
    fn from(error: ProfileError) -> Self {
        let message = error.to_string();
        match error {
            ProfileError::Stage { source, .. } => match Self::from(source) {
                Self::Busy { retry_after, .. } => Self::busy(message, retry_after),
                Self::Request { .. } => Self::Request { message },
                Self::NotFound { .. } => Self::NotFound { message },
                _ => Self::Host { message },
            },
            ProfileError::Nothing { .. } => Self::Request { message },
            ProfileError::Deadline { seconds } => Self::Deadline { seconds },
            _ => Self::Host { message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a guest's call is refused with that the host failed by an error of this code.
    fn refused(code: OpErrorCode) -> Refusal {
        let error = OpError::of_host(code, "no room");
        Refusal::extraction(SandboxError::HostOperation { error }, "acme")
    }

    #[test]
    fn what_the_host_caused_is_never_the_guests() {
        for code in [OpErrorCode::TooLarge, OpErrorCode::Timeout] {
            let refusal = refused(code);
            assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal:?}");
            assert!(refusal.to_string().contains("no room"), "{refusal}");
        }
        assert_eq!(refused(OpErrorCode::RuntimeError).class(), ErrorClass::Host);
        assert_eq!(refused(OpErrorCode::Security).class(), ErrorClass::Request);
        let own = OpError::new(OpErrorCode::TooLarge, "too large");
        let guest = Refusal::extraction(SandboxError::Failed(own), "acme");
        assert_eq!(guest.class(), ErrorClass::Guest);
        let pixels = Refusal::from(OpError::of_host(OpErrorCode::Timeout, "slow store"));
        assert_eq!(pixels.class(), ErrorClass::Busy);
    }
}
