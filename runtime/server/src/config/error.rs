use frostline_wire::QuotaRange;
use std::net::SocketAddr;

/// Configuration error, detected before a port is opened.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The TOML is invalid or has an unknown key.
    #[error("invalid host configuration: line {line}: {detail}")]
    Syntax {
        /// Line in the file, from 1.
        line: usize,
        /// Parser message.
        detail: String,
    },
    /// The value is malformed or out of range.
    #[error("host configuration: invalid {key} {value}: {rule}")]
    Value {
        /// Configuration key, for example `extractions.grant`.
        key: &'static str,
        /// Value as written.
        value: String,
        /// Expected values.
        rule: String,
    },
    /// The quota is out of range.
    #[error("host configuration: quota: {0}")]
    Quota(#[from] QuotaRange),
    /// The settings of a bucket are invalid.
    #[error("host configuration: [store.{name}]: invalid {key}: {rule}")]
    Store {
        /// Bucket name.
        name: String,
        /// Key in the section.
        key: String,
        /// Violated requirement.
        rule: String,
    },
    /// The settings of a remote admin are invalid.
    #[error("host configuration: [admins.{name}]: invalid {key}: {rule}")]
    Admin {
        /// Name of the admin.
        name: String,
        /// Key in the section.
        key: &'static str,
        /// Violated requirement.
        rule: &'static str,
    },
    /// The data root is invalid.
    #[error("host configuration: invalid data root {root:?}: {detail}")]
    Root {
        /// Data root as written.
        root: String,
        /// What is wrong.
        detail: String,
    },
    /// The state is in a bucket, and no directory is configured for the host itself.
    #[error(
        "host configuration: state is an object store, so the host needs a directory for its own files; set local, such as \
         local = \"/var/lib/frostline\""
    )]
    NoLocal,
    /// Tenants would be served over plain HTTP beyond loopback.
    #[error(
        "host configuration: listen = \"{listen}\" would send tokens and data unencrypted; set a certificate and its key under [tls], \
         listen on a loopback address, or set plain_http_beyond_loopback = true if the network is private"
    )]
    PlainHttp {
        /// Configured address.
        listen: SocketAddr,
    },
    /// Remote admins would be served without TLS.
    #[error(
        "host configuration: admin_listen = \"{listen}\" requires a certificate and its key under [tls]; local admins use the socket"
    )]
    PlainAdmin {
        /// Configured address.
        listen: SocketAddr,
    },
}
