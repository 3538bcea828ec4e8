//! Cryptography for TLS connections to stores.

use rustls::crypto::{CryptoProvider, ring};

/// Installs ring as the default provider of this process, unless the program has installed a provider.
/// reqwest is built without a default provider.
pub(crate) fn ensure_provider() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed a provider in the meantime, which is fine.
        let _ = ring::default_provider().install_default();
    }
}
