//! Uploads with broken connections.

use crate::{ClientError, HostClient, Notice, Notices, UploadKind, Uploaded};
use bytes::Bytes;
use frostline_fake_host::{FakeHost, Reply};
use frostline_wire::{ErrorClass, REPR_DIGEST, UPLOAD_COMPLETE, UPLOAD_OFFSET, digest_of};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

fn model() -> Bytes {
    (0..3_000_000_u32).map(|i| (i % 251) as u8).collect()
}

/// Upload state on a host, including the total number of received bytes.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    reached: usize,
}

/// Starts a host that keeps the received bytes of an upload, even if the upload breaks off.
async fn keeping_host() -> (SocketAddr, Arc<Mutex<Kept>>, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let kept: Arc<Mutex<Kept>> = Arc::default();
    let shared = Arc::clone(&kept);
    let accept = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let shared = Arc::clone(&shared);
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(keep(request, &shared).await) }
            });
            tokio::spawn(async move {
                let _ = Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, kept, AbortOnDropHandle::new(accept))
}

async fn keep(mut request: Request<Incoming>, kept: &Mutex<Kept>) -> Response<Full<Bytes>> {
    let answer = |status: StatusCode| {
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = status;
        answer
    };
    match *request.method() {
        Method::HEAD => {
            let mut answer = answer(StatusCode::NO_CONTENT);
            let offset = kept.lock().unwrap().bytes.len();
            answer.headers_mut().insert(UPLOAD_OFFSET, offset.into());
            answer
        }
        Method::PUT => {
            let text = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
            let digest = digest_of(&text(REPR_DIGEST)).unwrap();
            let offset = text(UPLOAD_OFFSET);
            assert_eq!(offset.parse::<usize>().unwrap(), kept.lock().unwrap().bytes.len());
            while let Some(frame) = request.body_mut().frame().await {
                let Ok(piece) = frame.map(|frame| frame.into_data().unwrap()) else {
                    return answer(StatusCode::BAD_REQUEST);
                };
                let mut kept = kept.lock().unwrap();
                kept.bytes.extend_from_slice(&piece);
                kept.reached += piece.len();
            }
            assert_eq!(hex::encode(Sha256::digest(&kept.lock().unwrap().bytes)), digest);
            answer(StatusCode::CREATED)
        }
        _ => answer(StatusCode::NOT_FOUND),
    }
}

/// Starts a relay that closes the first connections after the given numbers of bytes to the host.
async fn cutting_link(host: SocketAddr, cuts: Vec<u64>) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut cuts = cuts.into_iter();
    let accept = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let cut = cuts.next().unwrap_or(u64::MAX);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(host).await.unwrap();
                let (mut from_server, mut to_server) = server.split();
                {
                    let (from_client, mut to_client) = client.split();
                    let mut upstream = from_client.take(cut);
                    tokio::select! {
                        _ = copy(&mut upstream, &mut to_server) => {}
                        _ = copy(&mut from_server, &mut to_client) => {}
                    }
                }
                drop(client);
                // Deliver the forwarded bytes before the end of the stream.
                let _ = to_server.shutdown().await;
                let _ = copy(&mut from_server, &mut sink()).await;
            });
        }
    });
    (url, AbortOnDropHandle::new(accept))
}

async fn push(url: &str, bytes: Bytes) -> (Result<Uploaded, ClientError>, Vec<Notice>) {
    let events: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let log = Arc::clone(&events);
    let told: Notices = Arc::new(move |event| log.lock().unwrap().push(event));
    let client = HostClient::new(url, None).unwrap();
    let pushed = client.push(UploadKind::Model, "model", bytes, &told).await;
    let events = events.lock().unwrap().clone();
    (pushed, events)
}

fn retries(events: &[Notice]) -> usize {
    events
        .iter()
        .filter(|event| matches!(event, Notice::UploadRetry { .. }))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_link_breaks_twice_sends_each_byte_once() {
    let (host, kept, _host) = keeping_host().await;
    let (url, _link) = cutting_link(host, vec![1_000_000, 800_000]).await;
    let (pushed, events) = push(&url, model()).await;
    let pushed = pushed.unwrap();
    {
        let kept = kept.lock().unwrap();
        assert_eq!(kept.bytes, model());
        assert_eq!(kept.reached, model().len(), "no byte reached the host twice");
    }
    assert_eq!((pushed.bytes, pushed.skipped), (3_000_000, false));
    let resumed = pushed.resumed_at.unwrap();
    assert!((1_000_000..1_800_000).contains(&resumed), "{resumed}");
    assert!(pushed.seconds > 0.0);
    assert!(retries(&events) >= 2);
    let last = events.iter().rev().find_map(|event| match event {
        Notice::Uploading { sent, bytes, .. } => Some((*sent, *bytes)),
        _ => None,
    });
    assert_eq!(last, Some((3_000_000, 3_000_000)));
}

#[tokio::test]
async fn a_host_that_knows_no_offsets_gets_the_whole() {
    let host = FakeHost::start(|_, parts, body| match parts.method {
        Method::PUT => {
            assert_eq!(body.len(), model().len());
            Reply::json(&())
        }
        _ => Reply::Refused(404, ErrorClass::NotFound, None),
    })
    .await;
    let (pushed, events) = push(&host.url, model()).await;
    assert_eq!(pushed.unwrap().resumed_at, None);
    assert_eq!(retries(&events), 0);
}

/// Starts a host that reports `offset` until the first `PUT`, which is answered with `first`. After that, the
/// host has no bytes and accepts the upload.
async fn changing_host(offset: usize, first: fn() -> Reply) -> FakeHost {
    let puts = Mutex::new(0);
    FakeHost::start(move |_, parts, body| {
        let mut puts = puts.lock().unwrap();
        match parts.method {
            Method::HEAD => {
                let offset = if *puts == 0 { offset } else { 0 };
                Reply::Head(vec![(UPLOAD_OFFSET, offset.to_string())])
            }
            Method::PUT => {
                *puts += 1;
                if *puts == 1 {
                    return first();
                }
                assert_eq!(body.len(), model().len());
                Reply::json(&())
            }
            _ => Reply::Refused(404, ErrorClass::NotFound, None),
        }
    })
    .await
}

#[tokio::test]
async fn what_a_host_kept_wrongly_is_sent_anew() {
    for first in [
        || Reply::Refused(400, ErrorClass::Request, None),
        || Reply::Refused(409, ErrorClass::Request, None),
        || Reply::Refused(429, ErrorClass::Busy, Some(0)),
    ] {
        let host = changing_host(1_000_000, first).await;
        let (pushed, events) = push(&host.url, model()).await;
        assert!(!pushed.unwrap().skipped);
        assert_eq!(retries(&events), 1);
    }
}

#[tokio::test]
async fn bytes_that_a_host_refuses_are_not_sent_again() {
    let host = changing_host(0, || Reply::Refused(400, ErrorClass::Request, None)).await;
    let (pushed, events) = push(&host.url, model()).await;
    let refused = pushed.unwrap_err();
    assert!(matches!(refused, ClientError::Refused { .. }), "{refused}");
    assert_eq!(retries(&events), 0);
}

#[tokio::test]
async fn what_another_client_brought_meanwhile_is_not_sent() {
    let host = FakeHost::start(|_, parts, _| match parts.method {
        Method::HEAD => Reply::Head(vec![
            (UPLOAD_OFFSET, "3000000".to_owned()),
            (UPLOAD_COMPLETE, "?1".to_owned()),
        ]),
        Method::PUT => panic!("it is there"),
        _ => Reply::Refused(404, ErrorClass::NotFound, None),
    })
    .await;
    let (pushed, _) = push(&host.url, model()).await;
    assert!(pushed.unwrap().skipped);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_keeps_a_byte_per_attempt_makes_no_progress() {
    let heads = Mutex::new(0);
    let host = FakeHost::start(move |_, parts, _| match parts.method {
        Method::HEAD => {
            let mut heads = heads.lock().unwrap();
            *heads += 1;
            Reply::Head(vec![(UPLOAD_OFFSET, heads.to_string())])
        }
        Method::PUT => Reply::Refused(500, ErrorClass::Host, None),
        _ => Reply::Refused(404, ErrorClass::NotFound, None),
    })
    .await;
    let (pushed, events) = push(&host.url, model()).await;
    let error = pushed.unwrap_err();
    assert!(matches!(error, ClientError::Upload { .. }), "{error}");
    assert!(retries(&events) < 100, "{} retries", retries(&events));
}
