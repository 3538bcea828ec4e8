//! Contents and visibility of metrics.

use crate::client::{Client, body};
use crate::support::TestHost;
use frostline_server::TlsFiles;
use frostline_wire::QuotaKey;
use http::{Method, StatusCode};
use rcgen::generate_simple_self_signed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns a client for the operator's metrics port.
pub(crate) fn operator(test: &TestHost) -> Client {
    let address = test.host.as_ref().unwrap().metrics_address().unwrap();
    Client::new(format!("http://{address}"), String::new(), false)
}

/// Time for which a host sends the same text to everyone.
const SHARED: Duration = Duration::from_secs(1);

/// Reads the metrics after the end of all earlier requests.
pub(crate) async fn metrics(client: &Client) -> String {
    tokio::time::sleep(SHARED).await;
    let answer = client.send(Method::GET, "/metrics", "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    String::from_utf8(body(answer).await.to_vec()).unwrap()
}

/// Returns the value of a metric.
pub(crate) fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operators_port_names_refused_tenants() {
    let test = TestHost::with(|settings| settings.metrics_listen = Some("127.0.0.1:0".to_owned())).await;
    let quota = [(QuotaKey::Running, 1), (QuotaKey::Queued, 0)];
    let acme = test.tenant("acme", &quota).await;
    let bolt = test.tenant("bolt", &[]).await;
    let open = acme.extract(&test.large_request()).await;
    assert_eq!(open.status(), StatusCode::OK);
    let refused = acme.extract_refused(&test.large_request()).await.0;
    assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    let text = metrics(&operator(&test)).await;
    assert_eq!(
        value(&text, "frostline_tenant_busy_answers_total{tenant=\"acme\"}"),
        1.0
    );
    assert!(!text.contains("busy_answers_total{tenant=\"bolt\"}"));
    drop((open, bolt));
    let text = metrics(&test.client).await;
    assert_eq!(value(&text, "frostline_busy_answers_total"), 1.0);
    assert!(!text.contains("acme") && !text.contains("tenant"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn openmetrics_requires_an_accept_header() {
    let test = TestHost::start().await;
    let shown = async |accept: &str| {
        let headers = [("accept", accept)];
        let answer = test.client.send_with(Method::GET, "/metrics", &headers, "").await;
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        (kind, String::from_utf8(body(answer).await.to_vec()).unwrap())
    };
    let (kind, text) = shown("application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1").await;
    assert!(
        kind.starts_with("application/openmetrics-text") && text.ends_with("# EOF\n"),
        "{kind}"
    );
    assert!(
        text.contains("# TYPE frostline_connections_refused counter"),
        "{text}"
    );
    let (kind, text) = shown("*/*").await;
    assert!(
        kind.starts_with("text/plain; version=0.0.4") && !text.contains("# EOF"),
        "{kind}"
    );
    assert!(
        text.contains("# TYPE frostline_connections_refused_total counter"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_the_time_of_samples_by_stage() {
    let test = TestHost::start().await;
    let (guest, model) = test.upload().await;
    test.photos(6);
    let mut request = test.request("flat", 6);
    (request.guest, request.model) = (Some(guest), Some(model));
    let answer = test.client.extract(&request).await;
    assert_eq!(answer.status(), StatusCode::OK);
    body(answer).await;
    let text = metrics(&test.client).await;
    assert_eq!(value(&text, "frostline_read_seconds_count"), 6.0);
    assert_eq!(value(&text, "frostline_decode_seconds_count"), 6.0);
    assert!(value(&text, "frostline_read_bytes_total") > 0.0);
    let waits = |queue: &str| format!("frostline_queue_wait_seconds_count{{queue=\"{queue}\"}}");
    assert_eq!(value(&text, &waits("extraction")), 1.0);
    for queue in ["memory", "lane"] {
        assert!(
            value(&text, &waits(queue)) >= 2.0,
            "six samples in grants of four:\n{text}"
        );
    }
    assert!(value(&text, "frostline_state_age_seconds") < 60.0);
    assert!(value(&text, "process_resident_memory_bytes") > 0.0);
    assert!(text.contains("frostline_build_info{version=\""), "{text}");
    assert!(!text.contains("certificate"), "the host has no certificate");
}

/// Returns the answer to plain HTTP, or nothing if the port requires TLS.
async fn asked_plainly(test: &TestHost, path: &str) -> String {
    let address = test.host.as_ref().unwrap().metrics_address().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: metrics\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A host that expects a TLS handshake may close the connection with an error.
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_metrics_with_a_certificate_require_the_setting() {
    for (listen, plain) in [("127.0.0.1:0", false), ("http://127.0.0.1:0", true)] {
        let test = TestHost::with(|settings| {
            let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let folder = std::path::Path::new(&settings.state).parent().unwrap();
            let tls = TlsFiles {
                certificate: folder.join("cert.pem"),
                key: folder.join("key.pem"),
            };
            std::fs::write(&tls.certificate, made.cert.pem()).unwrap();
            std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
            settings.tls = Some(tls);
            settings.metrics_listen = Some(listen.to_owned());
        });
        let test = test.await;
        for (path, word) in [
            ("/metrics", "frostline_certificate_expiry_timestamp_seconds"),
            ("/healthz", "ok"),
            ("/readyz", "ready"),
        ] {
            let answer = asked_plainly(&test, path).await;
            let shown = answer.starts_with("HTTP/1.1 200") && answer.contains(word);
            assert_eq!(shown, plain, "{listen}{path}: {answer}");
        }
    }
}
