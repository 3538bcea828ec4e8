//! What a guest says it does: who pays for the answer, and who reads of it.

use crate::client::{Client, body};
use crate::fixtures::pin;
use crate::metrics::{metrics, operator, value};
use crate::support::TestHost;
use frostline_wire::{Description, DescriptionRequest, ErrorClass, Pin, QuotaKey};
use http::{Method, StatusCode};

async fn describe(client: &Client, (guest, model): (Pin, Pin)) -> Description {
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
async fn whoever_asks_pays_and_only_the_hosts_own_port_names_them() {
    let test = TestHost::with(|settings| settings.metrics_listen = Some("127.0.0.1:0".to_owned())).await;
    let (acme, bolt) = (test.tenant("acme", &[]).await, test.tenant("bolt", &[]).await);
    // The same guest: one tenant had it compiled, the other made it ready last.
    let (asked, other) = (acme.upload().await, bolt.upload().await);
    let operator = operator(&test);
    let cpu = |tenant: &str| format!("frostline_tenant_guest_cpu_seconds_total{{tenant=\"{tenant}\"}}");

    assert_eq!(describe(&acme, asked).await.name, "prefix");
    let text = metrics(&operator).await;
    let of_acme = value(&text, &cpu("acme"));
    assert!(of_acme > 0.0);
    assert_eq!(value(&text, &cpu("bolt")), 0.0, "it asked nothing");

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

mod needs_guests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_guest_that_describes_itself_without_end_uses_up_its_tenants_quota() {
        let spin = std::fs::read(frostline_needs::built_guest("spin-in-describe")).unwrap();
        let test = TestHost::start().await;
        let tenant = test.tenant("greedy", &[(QuotaKey::CpuSeconds, 0)]).await;
        let (_, model) = tenant.upload().await;
        let answer = tenant.send(Method::PUT, "/v1/guests/spin", spin.clone()).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let request = DescriptionRequest {
            guest: pin("spin", &spin),
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
