//! Descriptions of guests: CPU accounting, and visibility of tenants in metrics.

use crate::client::{Client, STUCK, body};
use crate::fixtures::upload_ref;
use crate::metrics::{metrics, operator, value};
use crate::support::TestHost;
use frostline_wire::{Description, DescriptionRequest, ErrorClass, QuotaKey, UploadRef};
use http::{Method, StatusCode};

async fn describe(client: &Client, (guest, model): (UploadRef, UploadRef)) -> Description {
    let request = DescriptionRequest {
        guest,
        model,
        parameters: String::new(),
    };
    let body = serde_json::to_vec(&request).unwrap();
    let answer = client.send(Method::POST, "/v1/descriptions", body).await;
    assert_eq!(answer.status(), StatusCode::OK);
    serde_json::from_slice(&self::body(answer).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_count_for_the_requesting_tenant() {
    let test = TestHost::with(|settings| settings.metrics_listen = Some("127.0.0.1:0".to_owned())).await;
    let acme = test.tenant("acme", &[]).await;
    let bolt = test.tenant("bolt", &[]).await;
    // Both tenants upload the same guest. It is compiled for `acme`, and loaded most recently for `bolt`.
    let asked = acme.upload().await;
    let other = bolt.upload().await;
    let operator = operator(&test);
    let cpu = |tenant: &str| format!("frostline_tenant_guest_cpu_seconds_total{{tenant=\"{tenant}\"}}");

    assert_eq!(describe(&acme, asked).await.name, "prefix");
    let text = metrics(&operator).await;
    let of_acme = value(&text, &cpu("acme"));
    assert!(of_acme > 0.0);
    assert_eq!(value(&text, &cpu("bolt")), 0.0, "bolt has sent no request");

    assert_eq!(describe(&bolt, other).await.name, "prefix");
    let text = metrics(&operator).await;
    assert!(value(&text, &cpu("bolt")) > 0.0);
    assert_eq!(value(&text, &cpu("acme")), of_acme);
    assert!(value(&text, "frostline_tenant_compile_seconds_total{tenant=\"acme\"}") > 0.0);

    let text = metrics(&test.client).await;
    assert!(value(&text, "frostline_guest_cpu_seconds_total") > 0.0);
    for word in ["acme", "bolt", "tenant"] {
        assert!(!text.contains(word), "{word} in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compiled_guest_is_served_without_the_state() {
    let mut test = TestHost::start().await;
    let asked = test.upload().await;
    test.host.take().unwrap().shutdown(STUCK).await;
    let test = TestHost::start_in(test.folder, |_| ()).await;
    // The bytes of all uploads.
    let blobs = test.folder.path().join("state/blobs");
    std::fs::rename(&blobs, test.folder.path().join("blobs")).unwrap();
    assert_eq!(describe(&test.client, asked).await.name, "prefix");
}

mod needs_guests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_endless_description_exhausts_the_cpu_quota() {
        let spin = std::fs::read(frostline_needs::built_guest("spin-in-describe")).unwrap();
        let test = TestHost::start().await;
        let tenant = test.tenant("greedy", &[(QuotaKey::CpuSeconds, 0)]).await;
        let (_, model) = tenant.upload().await;
        let answer = tenant.send(Method::PUT, "/v1/guests/spin", spin.clone()).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let request = DescriptionRequest {
            guest: upload_ref("spin", &spin),
            model,
            parameters: String::new(),
        };
        let body = serde_json::to_vec(&request).unwrap();
        let (status, error) = tenant.refused(Method::POST, "/v1/descriptions", body).await;
        assert_eq!(
            (status, error.class),
            (StatusCode::UNPROCESSABLE_ENTITY, ErrorClass::Guest)
        );
        assert!(error.message.contains("quota set greedy cpu_seconds="), "{error}");
    }
}
