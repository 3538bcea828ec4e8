use frostline_tensor::Cause;
use frostline_wire::QuotaRange;
use std::net::SocketAddr;

/// A configuration that cannot be right. Found before a port opens.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not TOML, or has keys nobody knows.
    #[error("the host configuration cannot be read: {detail}")]
    Syntax {
        /// The parser's text, with line and column.
        #[source]
        detail: Cause,
    },
    /// A value out of its range.
    #[error("host configuration: {key} is {value}, {rule}")]
    Value {
        /// The key, such as `extractions.grant`.
        key: &'static str,
        /// What was written.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A quota that no tenant can have.
    #[error("host configuration: quota.{0}")]
    Quota(#[from] QuotaRange),
    /// A data root that is no URL or path.
    #[error("host configuration: data root {root:?}: {detail}")]
    Root {
        /// As written.
        root: String,
        /// What is wrong.
        detail: String,
    },
    /// Plain HTTP would leave the machine.
    #[error(
        "host configuration: listen = \"{listen}\" would send tokens and data over the network unencrypted; name a certificate and its \
         key under [tls], listen on a loopback address, or write plain_http_beyond_loopback = true if the network is private"
    )]
    PlainHttp {
        /// The address.
        listen: SocketAddr,
    },
    /// Admins from afar without encryption.
    #[error(
        "host configuration: admin_listen = \"{listen}\" takes a certificate and its key, named under [tls]; admins on this machine use the socket"
    )]
    PlainAdmin {
        /// The address.
        listen: SocketAddr,
    },
}
