//! Hosts with several tenants.

use crate::client::{Client, End, rows};
use crate::support::TestHost;
use bytes::Bytes;
use frostline_wire::{QuotaChange, QuotaKey, RowFormat};
use http::{Method, StatusCode};

impl TestHost {
    /// Adds a tenant with access to the data and with this quota.
    pub(crate) async fn tenant(&self, name: &str, quota: &[(QuotaKey, u64)]) -> Client {
        let (token, _) = self.add_tenant(name).await;
        self.set_quota(name, quota).await;
        self.client_of(&token)
    }

    async fn set_quota(&self, name: &str, quota: &[(QuotaKey, u64)]) {
        let change: QuotaChange = quota.iter().map(|(key, value)| (*key, Some(*value))).collect();
        let path = format!("/v1/tenants/{name}/quota");
        self.admin(Method::PATCH, &path, &change).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_weight_is_refused_with_the_range() {
    let test = TestHost::start().await;
    test.add_tenant("acme").await;
    let change = QuotaChange::from([(QuotaKey::Weight, Some(0))]);
    let path = "/v1/tenants/acme/quota";
    let (status, answer) = test.ask_admin(Method::PATCH, path, &change).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("invalid weight 0: expected 1 to 100"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_of_objects_hold_for_every_split() {
    let test = TestHost::with(|settings| settings.extractions.calls = 1).await;
    let photos = test.photos(3);
    let bytes: usize = photos.iter().map(Bytes::len).sum();
    for (name, key, needed) in [
        ("reads", QuotaKey::ObjectReads, 3),
        ("bytes", QuotaKey::ObjectBytes, bytes as u64),
    ] {
        let client = test.tenant(name, &[]).await;
        let (guest, model) = client.upload().await;
        for split in ["none", "input", "classes"] {
            let mut request = test.request(split, 3);
            if split != "none" {
                (request.guest, request.model) = (Some(guest.clone()), Some(model.clone()));
            }
            for (limit, fits) in [(needed - 1, false), (needed, true)] {
                test.set_quota(name, &[(key, limit)]).await;
                let answer = client.extract(&request).await;
                let whole = match (answer.status(), split) {
                    (StatusCode::OK, "none") => {
                        let (_, end) = rows(RowFormat::Object, &request, answer).await;
                        end == End::Clean
                    }
                    (status, _) => status == StatusCode::OK,
                };
                assert_eq!(whole, fits, "{split} {key}");
            }
        }
    }
}
