//! What guests logged, for the tenants whose they are.

use crate::client::{Client, body};
use crate::fixtures::pin;
use crate::support::TestHost;
use frostline_wire::{ErrorClass, GuestLog, Pin};
use http::{Method, StatusCode};

async fn log(client: &Client, query: &str) -> GuestLog {
    let (status, log) = client.get(&format!("/v1/guests/noisy/log{query}")).await;
    assert_eq!(status, StatusCode::OK);
    log
}

async fn push(client: &Client, bytes: &[u8]) -> Pin {
    let answer = client.send(Method::PUT, "/v1/guests/noisy", bytes.to_vec()).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    pin("noisy", bytes)
}

mod needs_guests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_tenant_reads_what_its_own_guests_logged_and_nobody_else_does() {
        let noisy = std::fs::read(frostline_needs::built_guest("long-log-line")).unwrap();
        let test = TestHost::start().await;
        test.photos(2);
        let (acme, bolt) = (test.tenant("acme", &[]).await, test.tenant("bolt", &[]).await);
        let (_, model) = acme.upload().await;
        let guest = push(&acme, &noisy).await;
        push(&bolt, &noisy).await;
        assert!(log(&acme, "").await.lines.is_empty(), "it was not run yet");

        let mut request = test.request("classes", 2);
        (request.guest, request.model) = (Some(guest), Some(model));
        let answer = acme.extract(&request).await;
        assert_eq!(answer.status(), StatusCode::OK);
        body(answer).await;

        let seen = log(&acme, "").await;
        let [line, ..] = seen.lines.as_slice() else {
            panic!("{seen:?}")
        };
        assert_eq!((line.level.as_str(), line.text.len()), ("error", 1024));
        assert!(!line.text.chars().any(char::is_control) && !line.extraction.is_empty());
        let rest = log(&acme, &format!("?after={}", seen.next)).await;
        assert_eq!((rest.lines.len(), rest.next), (0, seen.next));

        assert!(
            log(&bolt, "").await.lines.is_empty(),
            "another's guest of the same name"
        );
        let path = "/v1/guests/noisy/log";
        let (status, error) = test.client.refused(Method::GET, path, "").await;
        assert_eq!(
            (status, error.class),
            (StatusCode::NOT_FOUND, ErrorClass::NotFound)
        );
        let stranger = test.client_of("nobody");
        assert_eq!(
            stranger.refused(Method::GET, path, "").await.0,
            StatusCode::UNAUTHORIZED
        );

        // Who has the name of a tenant that is gone does not read what that one's guests logged.
        let gone = test.ask_admin(Method::DELETE, "/v1/tenants/acme", &()).await.0;
        assert_eq!(gone, StatusCode::NO_CONTENT);
        let acme = test.tenant("acme", &[]).await;
        let (status, _) = acme.refused(Method::GET, path, "").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}
