use crate::{ClientError, Deadlines, HostClient, Hosts, Token, Trust};
use bytes::Bytes;
use frostline_fake_host::{Answer, FakeHost, Reply};
use frostline_wire::{
    Compression, ErrorClass, ExtractionRequest, GuestInfo, GuestLog, Layout, ObjectInfo, ObjectPage,
    OutwardLinks, RequestedSample, RowFormat, SampleRef, SkippedNames, Split, Terms, Values,
};
use http::Method;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn object(key: &str) -> ObjectInfo {
    ObjectInfo {
        sample: SampleRef::new(key),
        size: 1,
        label: None,
        changed: None,
    }
}

fn client(host: &FakeHost) -> HostClient {
    HostClient::new(&host.url, Some(Token::new("s3cret").unwrap())).unwrap()
}

#[tokio::test]
async fn a_listing_is_read_page_by_page_and_counted() {
    let host = FakeHost::start(|_, parts, _| {
        assert_eq!(parts.headers["authorization"], "Bearer s3cret");
        match parts.uri.query().unwrap() {
            "root=s3%3A%2F%2Fbucket%2Fa+b&layout=auto" => Reply::json(&ObjectPage {
                objects: vec![object("a")],
                next: Some("a".to_owned()),
                ..ObjectPage::default()
            }),
            "root=s3%3A%2F%2Fbucket%2Fa+b&layout=auto&after=a" => Reply::json(&ObjectPage {
                objects: vec![object("b")],
                left_out: SkippedNames {
                    count: 7,
                    names: vec!["a//b".to_owned()],
                    links: OutwardLinks {
                        count: 2,
                        first: "c -> /d".to_owned(),
                    },
                },
                ..ObjectPage::default()
            }),
            other => panic!("unexpected query {other}"),
        }
    })
    .await;
    let client = client(&host);
    let hosts = Hosts::from(client.clone());
    let epoch = hosts.metered();
    let objects = epoch.first(|client| async move { client.objects("s3://bucket/a b", Layout::Auto).await });
    assert_eq!(objects.await.unwrap(), [object("a"), object("b")]);
    assert!(epoch.bytes_received() > 50);
    assert_eq!(client.bytes_received(), epoch.bytes_received());
    assert_eq!(hosts.metered().bytes_received(), 0);
    let listing = client.listing("s3://bucket/a b", Layout::Auto).await.unwrap();
    let no_keys = SkippedNames {
        count: 7,
        names: vec!["a//b".to_owned()],
        links: OutwardLinks {
            count: 2,
            first: "c -> /d".to_owned(),
        },
    };
    assert_eq!((listing.len(), listing.no_keys), (2, no_keys));
}

#[tokio::test]
async fn a_listing_goes_on_by_shard_and_then_by_name() {
    // The second key precedes the first one in lexicographic order.
    let host = FakeHost::start(|_, parts, _| {
        let first = !parts.uri.query().unwrap().contains("after");
        Reply::json(&ObjectPage {
            objects: vec![object(if first {
                "a.tar//z.jpg"
            } else {
                "a.tar-2.tar//b.jpg"
            })],
            next: first.then(|| "a.tar//z.jpg".to_owned()),
            ..ObjectPage::default()
        })
    })
    .await;
    let objects = client(&host).objects("data", Layout::Shards).await.unwrap();
    assert_eq!(objects.len(), 2);
}

#[tokio::test]
async fn a_listing_that_does_not_move_on_is_an_error() {
    let host = FakeHost::start(|_, _, _| {
        Reply::json(&ObjectPage {
            objects: vec![object("a")],
            next: Some("a".to_owned()),
            ..ObjectPage::default()
        })
    })
    .await;
    let error = client(&host).objects("data", Layout::Auto).await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
}

#[tokio::test]
async fn what_the_host_has_is_not_sent_again() {
    let stored: Arc<Mutex<Option<Bytes>>> = Arc::default();
    let kept = Arc::clone(&stored);
    let host = FakeHost::start(move |_, parts, body| {
        assert_eq!(parts.uri.path(), "/v1/guests/prefix");
        let mut stored = kept.lock().unwrap();
        if parts.method == Method::PUT {
            *stored = Some(Bytes::copy_from_slice(body));
        }
        match &*stored {
            None => Reply::Refused(404, ErrorClass::NotFound, None),
            Some(bytes) => Reply::json(&GuestInfo {
                name: "prefix".to_owned(),
                sha256: hex::encode(Sha256::digest(bytes)),
                bytes: bytes.len() as u64,
                uploaded_at: 0,
                disabled: false,
            }),
        }
    })
    .await;
    let component = Bytes::from(vec![7; 3 << 20]);
    let client = client(&host);
    let first = client.push_guest("prefix", component.clone()).await.unwrap();
    assert!(!first.skipped && first.bytes == 3 << 20);
    assert_eq!(stored.lock().unwrap().as_ref(), Some(&component));
    assert!(client.push_guest("prefix", component).await.unwrap().skipped);
    assert!(
        !client
            .push_guest("prefix", Bytes::from_static(b"other"))
            .await
            .unwrap()
            .skipped
    );
}

#[tokio::test]
async fn a_busy_host_is_asked_again_when_it_says() {
    let host = FakeHost::start(|number, _, _| match number {
        0 => Reply::Refused(429, ErrorClass::Busy, Some(0)),
        _ => Reply::json(&ObjectPage {
            objects: vec![],
            next: None,
            ..ObjectPage::default()
        }),
    })
    .await;
    assert_eq!(client(&host).objects("data", Layout::Auto).await.unwrap(), []);
    assert_eq!(host.calls(), 2);
}

#[tokio::test]
async fn refusals_keep_the_hosts_own_words_and_no_token() {
    let host = FakeHost::start(|_, _, _| Reply::Refused(401, ErrorClass::Unauthorized, None)).await;
    let error = client(&host).guests().await.unwrap_err();
    assert!(matches!(
        error,
        ClientError::Refused {
            class: ErrorClass::Unauthorized,
            ..
        }
    ));
    let text = format!("{error} {error:?} {:?}", client(&host));
    assert!(
        text.contains("as scripted") && text.contains(&host.url) && !text.contains("s3cret"),
        "{text}"
    );
}

#[tokio::test]
async fn a_host_that_is_down_is_named() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = HostClient::new(&format!("http://{closed}"), None)
        .unwrap()
        .load()
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&closed.to_string()), "{error}");
}

#[tokio::test]
async fn a_plain_host_that_is_asked_over_tls_is_named_with_its_scheme() {
    let host = FakeHost::start(|_, _, _| Reply::Whole(Vec::new())).await;
    let encrypted = host.url.replace("http://", "https://");
    let error = HostClient::new(&encrypted, None)
        .unwrap()
        .load()
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    let advice = format!("it does not speak TLS; use {}", host.url);
    assert!(error.to_string().contains(&advice), "{error}");
}

/// A server that receives a request instead of a TLS handshake answers with the alert `unexpected_message`.
#[tokio::test]
async fn a_tls_host_that_is_asked_in_the_clear_is_named_with_its_scheme() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&[0x15, 3, 3, 0, 2, 2, 10]).await.unwrap();
        // Wait until the client closes the connection.
        stream.read_to_end(&mut Vec::new()).await.ok();
    });
    let client = HostClient::new(&format!("http://{address}"), None).unwrap();
    let error = client.load().await.unwrap_err();
    let advice = format!("if it serves TLS, use https://{address}");
    assert!(error.to_string().contains(&advice), "{error:?}");
    answering.await.unwrap();
}

#[tokio::test]
async fn a_host_that_goes_silent_ends_at_the_deadline() {
    let host = FakeHost::start(|_, _, _| Reply::Stuck(vec![Bytes::from_static(b"{")])).await;
    let deadlines = Deadlines {
        idle: Duration::from_millis(100),
        ..Deadlines::default()
    };
    let client = HostClient::with(&host.url, None, &Trust::default(), deadlines).unwrap();
    let error = client.load().await.unwrap_err();
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
}

#[test]
fn addresses_that_are_no_hosts_are_refused() {
    for url in [
        "storage:8080",
        "ftp://h",
        "https://h/path",
        "http://h/path",
        "http://h?x=1",
        "",
        "https://me:geheim@h:8443",
        "http://geheim@h",
        "https://me:geheim@h/path",
        "dns+http://me:geheim@h",
    ] {
        let error = HostClient::new(url, None).map(drop).unwrap_err();
        assert!(matches!(&error, ClientError::Address { .. }), "{url}");
        assert!(!error.to_string().contains("geheim"), "{error}");
    }
}

#[tokio::test]
async fn a_host_in_this_process_is_not_called_by_its_address() {
    let address = FakeHost::free_address();
    let client = HostClient::embedded(&format!("http://{address}"), Token::new("s3cret").unwrap()).unwrap();
    let text = client.load().await.unwrap_err().to_string();
    assert!(text.starts_with("cannot reach the embedded host: "), "{text}");
    assert!(!text.contains(&address), "{text}");
}

/// Builds a request for a sample and the answer as a single piece.
fn small_answer() -> (ExtractionRequest, Reply) {
    let request = ExtractionRequest {
        root: "data".to_owned(),
        split: Split::Input,
        guest: None,
        model: None,
        parameters: String::new(),
        encoding: "f32+lz4".parse().unwrap(),
        terms: Terms::default(),
        view: None,
        samples: vec![RequestedSample {
            position: 0,
            sample: SampleRef::new("a"),
        }],
        digests: false,
    };
    let answer = Answer::compressed(RowFormat::Tensor(Values::F32, vec![100]), Compression::Lz4);
    let Reply::Whole(pieces) = answer.row(0, vec![1.0; 100]).finished() else {
        panic!("the answer must be whole");
    };
    (request, Reply::Whole(vec![pieces.concat().into()]))
}

#[test]
fn answers_are_not_decoded_on_the_threads_of_the_network() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let host = FakeHost::start(|_, _, _| small_answer().1).await;
        let client = client(&host);
        let format = RowFormat::Tensor(Values::F32, vec![100]);
        let limit = 1 << 20;
        let request = small_answer().0;
        let open = || client.extract(&request, format.clone(), limit);
        let mut answer = open().await.unwrap();
        let mut dropped = open().await.unwrap();
        // Occupy the only blocking thread.
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || gate.recv());
        for answer in [&mut answer, &mut dropped] {
            let before = client.bytes_received();
            let mut next = std::pin::pin!(answer.next());
            while client.bytes_received() == before {
                assert!(
                    futures::poll!(&mut next).is_pending(),
                    "decoded on a network thread"
                );
                tokio::task::yield_now().await;
            }
        }
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // A dropped read must not yield rows or a successful end.
        for answer in [answer, dropped] {
            let mut answer = answer;
            let error = answer.next().await.err();
            assert!(matches!(error, Some(ClientError::Ended { .. })), "{error:?}");
        }
        let mut whole = open().await.unwrap();
        assert_eq!(whole.next().await.unwrap().unwrap().len(), 1);
        assert!(whole.next().await.unwrap().is_none());
    });
}

#[tokio::test]
async fn a_log_that_stays_where_it_is_is_an_error() {
    let host = FakeHost::start(|_, _, _| {
        Reply::json(&GuestLog {
            next: 7,
            more: true,
            ..GuestLog::default()
        })
    })
    .await;
    let error = client(&host).guest_log("stays", 7).await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
}
