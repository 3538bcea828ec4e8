//! Log lines of guests are visible to the owner only.

use crate::client::{Client, body};
use crate::fixtures::upload_ref;
use crate::support::TestHost;
use frostline_wire::{ErrorClass, GuestLog, UploadRef};
use http::{Method, StatusCode};

async fn log(client: &Client, query: &str) -> GuestLog {
    let (status, log) = client.get(&format!("/v1/guests/noisy/log{query}")).await;
    assert_eq!(status, StatusCode::OK);
    log
}

async fn push(client: &Client, bytes: &[u8]) -> UploadRef {
    let answer = client.send(Method::PUT, "/v1/guests/noisy", bytes.to_vec()).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    upload_ref("noisy", bytes)
}

mod needs_guests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn guest_logs_are_visible_to_the_owner_only() {
        let noisy = std::fs::read(frostline_needs::built_guest("long-log-line")).unwrap();
        let test = TestHost::start().await;
        test.photos(2);
        let acme = test.tenant("acme", &[]).await;
        let bolt = test.tenant("bolt", &[]).await;
        let (_, model) = acme.upload().await;
        let guest = push(&acme, &noisy).await;
        push(&bolt, &noisy).await;
        assert!(log(&acme, "").await.lines.is_empty(), "the guest has not run yet");

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
            "log lines are separate per tenant, even for equal names"
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

        // A new tenant with the name of a removed one does not see the old log.
        let gone = test
            .ask_admin(Method::DELETE, "/v1/tenants/acme?erase=true", &())
            .await
            .0;
        assert_eq!(gone, StatusCode::OK);
        let acme = test.tenant("acme", &[]).await;
        let (status, _) = acme.refused(Method::GET, path, "").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}
