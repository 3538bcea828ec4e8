//! Admin interface. Admins are users with write access to the host's Unix socket, and clients of the TLS
//! admin port with the admin token. All changes are audited.

pub(super) mod activity;
mod identity;
pub(super) mod jobs;
pub(super) mod quota;
mod remote;
pub(super) mod tenants;
pub(super) mod uploads;
pub(super) mod usage;

pub(super) use identity::Admin;
pub(crate) use remote::RemoteAdmins;
pub(super) use remote::behind_token;
