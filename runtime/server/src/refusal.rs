//! Reasons to refuse a request, independent of HTTP.

use crate::config::AdminRole;
use frostline_batching::Unfinished;
use frostline_graph::GraphError;
use frostline_objects::{Fault, ObjectError};
use frostline_profile::ProfileError;
use frostline_sandbox::{Resource, SandboxError};
use frostline_state::{AuditError, StateError};
use frostline_tensor::{OpError, OpErrorCode};
use frostline_wire::{ErrorClass, FrameError, QuotaKey};
use std::time::Duration;
use tokio::task::JoinError;

/// Retry delay after running out of memory during a request. Lanes and memory are usually released within
/// seconds.
const MEMORY_RETRY: Duration = Duration::from_secs(2);

/// Retry delay after a store has refused the host's credentials.
const STORE_RETRY: Duration = Duration::from_secs(5);

/// Retry delay of a tenant that waits for a snapshot. Hosts check once a minute whether one is due.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(60);

/// Reason to refuse a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The tenant token is missing or invalid.
    #[error(
        "this host requires 'Authorization: Bearer <token>' with a tenant's token; ask the operator for one"
    )]
    Unauthorized,
    /// The admin token is missing or invalid.
    #[error(
        "this port requires 'Authorization: Bearer <token>' with the token of an admin, not a tenant's; the host's \
         configuration names the files of these tokens (admin_token_file, and token_file under [admins])"
    )]
    NotAdmin,
    /// The role of the admin does not allow the request.
    #[error(
        "the admin {name} has the role {role}, and this request requires {required}; ask an admin with that role, or change the \
         role under [admins.{name}] in the host's configuration"
    )]
    Role {
        name: String,
        role: AdminRole,
        required: AdminRole,
    },
    /// The token of the admin has expired.
    #[error(
        "the token of the admin {name} expired at {at} (Unix time); write a new token to its file, and change expires under \
         [admins.{name}] in the host's configuration"
    )]
    AdminExpired { name: String, at: u64 },
    /// The token has expired.
    #[error(
        "this token expired at {at} (Unix time); ask the operator for a new one (frostline admin tenant rotate)"
    )]
    Expired { at: u64 },
    /// The tenant is disabled.
    #[error("this tenant is disabled on this host; ask the operator to enable it")]
    Disabled,
    /// The operator cancelled the job.
    #[error(
        "the operator of this host has cancelled the job {id}; ask the operator why, or start the job anew"
    )]
    Cancelled { id: String },
    /// The guest is disabled.
    #[error(
        "the guest {guest:?} is disabled on this host; the operator can enable it (frostline admin guest enable {tenant}/{guest})"
    )]
    GuestDisabled { tenant: String, guest: String },
    /// The request is invalid.
    #[error("{message}")]
    Request { message: String },
    /// No route matches the path.
    #[error("unknown path {path}; the API is under /v1")]
    Route { path: String },
    /// The route does not support the method.
    #[error("method {method} is not allowed at this path")]
    Method { method: String },
    /// The name does not exist.
    #[error("{message}")]
    NotFound { message: String },
    /// The name exists with a different SHA-256 than the reference requires.
    #[error("{message}")]
    OtherVersion { message: String },
    /// An upload resumes at the wrong offset.
    #[error("the host has {has} bytes of this upload; resume at that offset")]
    Offset { has: u64 },
    /// A fixed limit of the host is exceeded.
    #[error("{what} has {bytes} bytes, the limit of this host is {limit}")]
    TooLarge { what: String, bytes: u64, limit: u64 },
    /// The host can never reserve enough memory for the request.
    #[error("{message}")]
    Memory { message: String },
    /// A quota is exceeded.
    #[error(
        "quota {key} exceeded: {requested} of {limit} for {tenant}; the operator can raise it (frostline admin quota set \
         {tenant} {key}=<number>)"
    )]
    Quota {
        tenant: String,
        key: QuotaKey,
        requested: u64,
        limit: u64,
    },
    /// A daily quota of the tenant is used up.
    #[error(
        "{tenant} has used up its {key} of {limit}: {used} today (UTC); retry after midnight, or ask the operator to raise it (frostline \
         admin quota set {tenant} {key}=<number>)"
    )]
    Budget {
        tenant: String,
        key: QuotaKey,
        used: u64,
        limit: u64,
    },
    /// The client sent the request body too slowly.
    #[error("the request's body took longer than {seconds} s plus 1 s per 64 KiB; an upload can be resumed")]
    Stalled { seconds: u64 },
    /// All permits are in use, or memory is short.
    #[error("{message}")]
    Busy { message: String, retry_after: Duration },
    /// The host is shutting down.
    #[error("this host is shutting down; use another host, or retry later")]
    Stopping,
    /// The request exceeded the time limit.
    #[error("the request exceeded the time limit of {seconds} s")]
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

    /// Creates the refusal for an error caused by the host. Memory shortages, timeouts and refused
    /// credentials are temporary, so the client may retry.
    fn from_host_error(error: &OpError, message: String) -> Self {
        match error.code {
            OpErrorCode::TooLarge | OpErrorCode::Timeout => Self::busy(message, MEMORY_RETRY),
            // The store refuses the host's credentials. The operator may have to fix this, or it is
            // temporary.
            OpErrorCode::Security => Self::busy(message, STORE_RETRY),
            _ => Self::Host { message },
        }
    }

    /// Converts an error of a guest call. If it exceeded a limit, the message names the quota or the setting that
    /// raises it.
    pub(crate) fn extraction(error: SandboxError, tenant: &str) -> Self {
        let SandboxError::Limit { resource, .. } = &error else {
            return error.into();
        };
        let message = match limit_of(*resource) {
            LimitSource::Quota(key) => format!("{error} (frostline admin quota set {tenant} {key}=<number>)"),
            LimitSource::Setting(name) => format!("{error} (guests.{name} in the host's configuration)"),
        };
        Self::Guest { message }
    }

    /// Converts an error from a sandbox step outside of guest code. An exceeded quota becomes
    /// [`Refusal::Quota`].
    pub(crate) fn quota(error: SandboxError, tenant: &str) -> Self {
        if let SandboxError::Limit {
            resource,
            wanted,
            allowed,
        } = error
            && let LimitSource::Quota(key) = limit_of(resource)
        {
            return Self::Quota {
                tenant: tenant.to_owned(),
                key,
                requested: wanted,
                limit: allowed,
            };
        }
        error.into()
    }

    /// Returns the class that tells the client how to react.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Unauthorized
            | Self::NotAdmin
            | Self::Role { .. }
            | Self::AdminExpired { .. }
            | Self::Expired { .. }
            | Self::Disabled
            | Self::GuestDisabled { .. } => ErrorClass::Unauthorized,
            Self::Request { .. }
            | Self::Cancelled { .. }
            | Self::Route { .. }
            | Self::Method { .. }
            | Self::Offset { .. } => ErrorClass::Request,
            Self::NotFound { .. } | Self::OtherVersion { .. } => ErrorClass::NotFound,
            Self::TooLarge { .. } | Self::Memory { .. } | Self::Quota { .. } | Self::Budget { .. } => {
                ErrorClass::TooLarge
            }
            Self::Busy { .. } => ErrorClass::Busy,
            Self::Stopping => ErrorClass::Stopping,
            Self::Guest { .. } => ErrorClass::Guest,
            Self::Stalled { .. } | Self::Deadline { .. } | Self::Host { .. } => ErrorClass::Host,
        }
    }
}

/// Source of a limit on guests.
enum LimitSource {
    Quota(QuotaKey),
    /// Key in the section `[guests]` of the host's configuration.
    Setting(&'static str),
}

fn limit_of(resource: Resource) -> LimitSource {
    match resource {
        Resource::TensorBytes => LimitSource::Quota(QuotaKey::TensorBytes),
        Resource::ObjectReads => LimitSource::Quota(QuotaKey::ObjectReads),
        Resource::ObjectBytes => LimitSource::Quota(QuotaKey::ObjectBytes),
        Resource::OutputBytes => LimitSource::Quota(QuotaKey::OutputBytes),
        Resource::LogBytes => LimitSource::Quota(QuotaKey::LogBytes),
        Resource::CpuMillis => LimitSource::Quota(QuotaKey::CpuSeconds),
        Resource::Memory => LimitSource::Setting("memory_bytes"),
        Resource::TableElements => LimitSource::Setting("table_elements"),
        Resource::Handles => LimitSource::Setting("handles"),
        Resource::SliceMillis => LimitSource::Setting("slice_seconds"),
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
            SandboxError::HostOperation { error } => Self::from_host_error(&error, message),
            _ => Self::Guest { message },
        }
    }
}

/// Converts a panic or a cancellation of a task.
impl From<JoinError> for Refusal {
    fn from(error: JoinError) -> Self {
        Self::host(format!("internal task failed: {error}"))
    }
}

impl From<Unfinished> for Refusal {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::Cancelled => Self::Stopping,
            Unfinished::Deadline(after) => Self::Deadline {
                seconds: after.as_secs(),
            },
            Unfinished::Panicked => Self::host(unfinished),
        }
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
        let message = error.to_string();
        match error.fault() {
            // The root cannot be used at all, so the client or the operator has to change the request or the
            // grant.
            Some(Fault::NoBucket) => Self::NotFound { message },
            Some(Fault::Denied | Fault::Credentials) => Self::Request { message },
            _ => Self::from(OpError::from(error)),
        }
    }
}

impl From<OpError> for Refusal {
    fn from(error: OpError) -> Self {
        if error.host_caused {
            let message = error.message.clone();
            return Self::from_host_error(&error, message);
        }
        let message = error.message;
        match error.code {
            OpErrorCode::NotFound => Self::NotFound { message },
            OpErrorCode::RuntimeError | OpErrorCode::Timeout | OpErrorCode::Unknown => Self::Host { message },
            _ => Self::Request { message },
        }
    }
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        match error {
            StateError::TooMany { .. } | StateError::Facts { .. } => Self::request(error.to_string()),
            StateError::Full {
                tenant,
                requested,
                limit,
            } => Self::Quota {
                tenant,
                key: QuotaKey::StoredBytes,
                requested,
                limit,
            },
            StateError::Gone { .. } => Self::not_found(error.to_string()),
            StateError::LogFull { .. } => Self::busy(error.to_string(), SNAPSHOT_WAIT),
            _ => Self::host(state_message(&error)),
        }
    }
}

impl From<AuditError> for Refusal {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Memory(_) => Self::busy(error.to_string(), MEMORY_RETRY),
            AuditError::State(_) => Self::host(error),
        }
    }
}

/// Returns the message about an error of the state for tenants. It does not reveal the state's location or other
/// tenants' data. The full error is logged.
pub(crate) fn state_message(error: &StateError) -> String {
    let message = match error {
        StateError::Store(_) => "the host's state is unavailable and nothing was changed; retry later",
        StateError::OutcomeUnknown { .. } => {
            "the host's state could not be written; the change may have been applied: check, and repeat it if not"
        }
        _ => return error.to_string(),
    };
    tracing::error!(%error, "state store failed");
    format!("{message} (the cause is in the host's log)")
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
            ProfileError::Missing { .. } => Self::Request { message },
            ProfileError::Deadline { seconds } => Self::Deadline { seconds },
            _ => Self::Host { message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GuestSettings;
    use frostline_sandbox::CompileCost;

    /// Returns the refusal for a guest call after a host operation failed with `code`.
    fn refused(code: OpErrorCode) -> Refusal {
        let error = OpError::from_host(code, "no room");
        Refusal::extraction(SandboxError::HostOperation { error }, "acme")
    }

    #[test]
    fn every_limit_of_a_guest_can_be_raised_where_the_message_says() {
        let sections = serde_json::to_value(GuestSettings::default()).unwrap();
        for resource in [
            Resource::Memory,
            Resource::TableElements,
            Resource::Handles,
            Resource::SliceMillis,
        ] {
            let error = SandboxError::Limit {
                resource,
                wanted: 2,
                allowed: 1,
            };
            let message = Refusal::extraction(error, "acme").to_string();
            let (_, setting) = message.split_once("(guests.").unwrap();
            let (key, _) = setting.split_once(' ').unwrap();
            assert!(sections.get(key).is_some(), "{message}");
        }
        for cost in [CompileCost::MemoryBytes, CompileCost::CpuSeconds] {
            let key = cost.setting().strip_prefix("guests.").unwrap();
            assert!(sections.get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn host_errors_are_not_attributed_to_the_guest() {
        for code in [OpErrorCode::TooLarge, OpErrorCode::Timeout] {
            let refusal = refused(code);
            assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal:?}");
            assert!(refusal.to_string().contains("no room"), "{refusal}");
        }
        assert_eq!(refused(OpErrorCode::RuntimeError).class(), ErrorClass::Host);
        assert_eq!(refused(OpErrorCode::Security).class(), ErrorClass::Busy);
        let own = OpError::new(OpErrorCode::TooLarge, "too large");
        let guest = Refusal::extraction(SandboxError::Failed(own), "acme");
        assert_eq!(guest.class(), ErrorClass::Guest);
        let pixels = Refusal::from(OpError::from_host(OpErrorCode::Timeout, "slow store"));
        assert_eq!(pixels.class(), ErrorClass::Busy);
    }
}
