//! Other tenants of a host.

use crate::client::Client;
use crate::support::TestHost;
use frostline_wire::{QuotaChange, QuotaKey};
use http::{Method, StatusCode};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_weight_that_is_none_is_refused_with_those_there_are() {
    let test = TestHost::start().await;
    test.add("acme").await;
    let change = QuotaChange::from([(QuotaKey::Weight, Some(0))]);
    let path = "/v1/tenants/acme/quota";
    let (status, answer) = test.ask_admin(Method::PATCH, path, &change).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("invalid weight 0: expected 1 to 100"), "{answer}");
}
