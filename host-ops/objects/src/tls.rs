//! The cryptography behind TLS connections to stores.

use rustls::crypto::{CryptoProvider, ring};

/// Makes ring the default provider of this process, unless the program has installed another. reqwest is built without one of its own.
pub(crate) fn ensure_provider() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed one since, which serves as well.
        let _ = ring::default_provider().install_default();
    }
}
