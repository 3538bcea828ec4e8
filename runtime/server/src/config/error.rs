use frostline_tensor::Cause;
use frostline_wire::QuotaRange;
use std::net::SocketAddr;

/// An invalid configuration, detected before a port opens.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Invalid TOML, or an unknown key.
    #[error("invalid host configuration: {detail}")]
    Syntax {
        /// The parser's text, with line and column.
        #[source]
        detail: Cause,
    },
    /// A value out of range.
    #[error("host configuration: invalid {key} {value}: {rule}")]
    Value {
        /// The key, such as `extractions.grant`.
        key: &'static str,
        /// What was written.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A quota out of range.
    #[error("host configuration: quota: {0}")]
    Quota(#[from] QuotaRange),
    /// Invalid settings of a store.
    #[error("host configuration: [store.{name}]: invalid {key}: {rule}")]
    Store {
        /// The bucket.
        name: String,
        /// The key.
        key: String,
        /// What it must be.
        rule: String,
    },
    /// An invalid data root.
    #[error("host configuration: invalid data root {root:?}: {detail}")]
    Root {
        /// As written.
        root: String,
        /// What is wrong.
        detail: String,
    },
    /// Plain HTTP beyond loopback.
    #[error(
        "host configuration: listen = \"{listen}\" would send tokens and data unencrypted; set a certificate and its key under [tls], \
         listen on a loopback address, or set plain_http_beyond_loopback = true if the network is private"
    )]
    PlainHttp {
        /// The address.
        listen: SocketAddr,
    },
    /// Remote admins without TLS.
    #[error(
        "host configuration: admin_listen = \"{listen}\" requires a certificate and its key under [tls]; local admins use the socket"
    )]
    PlainAdmin {
        /// The address.
        listen: SocketAddr,
    },
}
