//! Other tenants of a host.

use crate::client::Client;
use crate::support::TestHost;
use frostline_wire::{QuotaChange, QuotaKey};
use http::Method;

impl TestHost {
    /// Another tenant, which may read the data and has this of a quota.
    pub(crate) async fn tenant(&self, name: &str, quota: &[(QuotaKey, u64)]) -> Client {
        let (token, _) = self.add(name).await;
        let change: QuotaChange = quota.iter().map(|(key, value)| (*key, Some(*value))).collect();
        let path = format!("/v1/tenants/{name}/quota");
        self.admin(Method::PATCH, &path, &change).await;
        self.client_of(&token)
    }
}
