//! DNS changes: hosts join and leave during a job.

use super::fetching::{answer_all, assert_complete, retry, source, start_with, take};
use crate::hosts::{Lookup, MISSING};
use crate::{ClientError, Deadlines, HostState, Hosts, Notice, RowKind, Trust, UploadKind};
use bytes::Bytes;
use frostline_fake_host::{FakeHost, Reply, extraction};
use frostline_wire::{ErrorClass, Load, ModelInfo, UploadRef};
use http::Method;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const STUCK: Duration = Duration::from_secs(60);

/// A host that reports a name and records requests.
struct Named {
    host: FakeHost,
    asked: Arc<Mutex<BTreeSet<String>>>,
    uploads: Arc<Mutex<Vec<String>>>,
}

impl Named {
    async fn start(name: &'static str) -> Self {
        Self::with_models(name, Vec::new()).await
    }

    /// Like [`Named::start`], with these models.
    async fn with_models(name: &'static str, models: Vec<ModelInfo>) -> Self {
        let asked: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let uploads: Arc<Mutex<Vec<String>>> = Arc::default();
        let asks = Arc::clone(&asked);
        let uploaded = Arc::clone(&uploads);
        let host = FakeHost::start(move |_, parts, body| match (&parts.method, parts.uri.path()) {
            (_, "/readyz") => Reply::Whole(Vec::new()),
            (&Method::GET, "/v1/models") => Reply::json(&models),
            (_, "/v1/load") => Reply::json(&Load {
                name: Some(name.to_owned()),
                ..Load::default()
            }),
            (&Method::POST, _) => {
                let request = extraction(body);
                let keys = request.samples.iter().map(|sample| sample.sample.key.clone());
                asks.lock().unwrap().extend(keys);
                answer_all(&request)
            }
            (&Method::PUT, path) => {
                uploaded.lock().unwrap().push(path.to_owned());
                Reply::Whole(Vec::new())
            }
            _ => Reply::Refused(404, ErrorClass::NotFound, None),
        });
        Self {
            host: host.await,
            asked,
            uploads,
        }
    }

    fn address(&self) -> SocketAddr {
        self.host.url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// Returns the keys requested since the last call.
    fn asked(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// Addresses of the DNS name, or `None` if the lookup fails.
type Answer = Arc<Mutex<Option<Vec<SocketAddr>>>>;

fn name_of(hosts: &[&Named]) -> Answer {
    Arc::new(Mutex::new(Some(
        hosts.iter().map(|host| host.address()).collect(),
    )))
}

async fn found(answer: &Answer) -> Result<Hosts, ClientError> {
    let answer = Arc::clone(answer);
    let lookup: Lookup = Arc::new(move |name, port| {
        assert_eq!((name.as_str(), port), ("store", 7433));
        let answer = answer.lock().unwrap().clone();
        Box::pin(async move { answer.ok_or_else(|| std::io::Error::other("no such name")) })
    });
    Hosts::found_by("dns+http://store:7433", lookup).await
}

/// Waits for a notice that the host has the state `wanted`, and returns the reason.
async fn told(notices: &Mutex<Vec<Notice>>, of: &Named, wanted: HostState) -> String {
    let there = || {
        let notices = notices.lock().unwrap();
        notices.iter().find_map(|notice| match notice {
            Notice::Host {
                host, state, reason, ..
            } if *host == of.host.url && *state == wanted => Some(reason.clone()),
            _ => None,
        })
    };
    let wait = async {
        loop {
            match there() {
                Some(reason) => return reason,
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    tokio::time::timeout(STUCK, wait)
        .await
        .expect("no notice about the host arrived")
}

#[tokio::test]
async fn a_host_joins_a_job_and_leaves_it_as_the_name_says() {
    let a = Named::start("a").await;
    let b = Named::start("b").await;
    let answer = name_of(&[&a]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    let pushed = setting
        .hosts
        .push(UploadKind::Model, "layers", Bytes::from_static(b"layers"));
    pushed.await.unwrap();
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    assert_eq!(a.asked().len(), 40);

    answer.lock().unwrap().as_mut().unwrap().push(b.address());
    setting.hosts.look_again().await;
    assert_eq!(told(&setting.notices, &b, HostState::Up).await, "it joined");
    assert_eq!(
        *b.uploads.lock().unwrap(),
        ["/v1/models/layers"],
        "before it is asked for rows"
    );
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    let of_a = a.asked();
    let of_b = b.asked();
    assert!(!of_a.is_empty() && !of_b.is_empty());
    assert_eq!(
        of_a.len() + of_b.len(),
        40,
        "objects must not be requested from both hosts"
    );

    *answer.lock().unwrap() = Some(vec![b.address()]);
    for _ in 0..MISSING {
        setting.hosts.look_again().await;
    }
    let reason = told(&setting.notices, &a, HostState::Down).await;
    assert!(reason.contains("dns+http://store:7433"), "{reason}");
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    assert_eq!((a.asked().len(), b.asked().len()), (0, 40));
}

#[tokio::test]
async fn objects_stay_where_they_are_when_a_host_comes_back_at_another_address() {
    let a = Named::start("a").await;
    let b = Named::start("b").await;
    let answer = name_of(&[&a, &b]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    let before = (a.asked(), b.asked());
    let moved = Named::start("b").await;
    *answer.lock().unwrap() = Some(vec![moved.address(), a.address()]);
    drop(b);
    setting.hosts.look_again().await;
    told(&setting.notices, &moved, HostState::Up).await;
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    assert_eq!((a.asked(), moved.asked()), before);
    // The next job uses the same placement.
    let next = start_with(setting.hosts.clone(), source(RowKind::Values), retry());
    assert_complete(&take(&next, 40).await.unwrap(), 40);
    assert_eq!((a.asked(), moved.asked()), before);
}

#[tokio::test]
async fn hosts_stay_where_each_answer_of_their_name_has_others_of_them() {
    let a = Named::start("a").await;
    let b = Named::start("b").await;
    let answer = name_of(&[&a, &b]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    for turn in 0..10 {
        let some = [&a, &b][turn % 2].address();
        *answer.lock().unwrap() = Some(vec![some]);
        setting.hosts.look_again().await;
        assert_complete(&take(&setting, 40).await.unwrap(), 40);
        let of_a = a.asked();
        let of_b = b.asked();
        assert!(!of_a.is_empty() && !of_b.is_empty(), "turn {turn}");
    }
    assert!(
        setting.notices.lock().unwrap().is_empty(),
        "unexpected host change"
    );
}

#[tokio::test]
async fn a_host_that_is_gone_leaves_with_the_first_answer_without_it() {
    let a = Named::start("a").await;
    let b = Named::start("b").await;
    let answer = name_of(&[&a, &b]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    drop(a);
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    *answer.lock().unwrap() = Some(vec![b.address()]);
    setting.hosts.look_again().await;
    assert_eq!(setting.hosts.names(), b.host.url);
}

#[tokio::test]
async fn a_name_that_is_not_found_for_a_while_changes_nothing() {
    let a = Named::start("a").await;
    let b = Named::start("b").await;
    let answer = name_of(&[&a, &b]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    for none in [None, Some(Vec::new())] {
        *answer.lock().unwrap() = none;
        setting.hosts.look_again().await;
        assert_complete(&take(&setting, 40).await.unwrap(), 40);
        assert!(!a.asked().is_empty() && !b.asked().is_empty());
    }
    assert!(setting.notices.lock().unwrap().is_empty());
    let error = found(&answer).await.unwrap_err().to_string();
    assert!(
        error.contains("dns+http://store:7433") && error.contains("no records"),
        "{error}"
    );
}

#[tokio::test]
async fn hosts_that_call_themselves_the_same_share_the_work() {
    let one = Named::start("same").await;
    let other = Named::start("same").await;
    let answer = name_of(&[&one, &other]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    assert!(!one.asked().is_empty() && !other.asked().is_empty());
}

#[tokio::test]
async fn a_host_that_does_not_answer_joins_once_it_does() {
    let a = Named::start("a").await;
    let late = FakeHost::free_address();
    let answer = name_of(&[&a]);
    answer
        .lock()
        .unwrap()
        .as_mut()
        .unwrap()
        .push(late.parse().unwrap());
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    assert_eq!(a.asked().len(), 40);
    let late = FakeHost::start_at(&late, |_, parts, body| match parts.uri.path() {
        "/readyz" => Reply::Whole(Vec::new()),
        // Hosts of earlier versions do not report a name.
        "/v1/load" => Reply::json(&Load::default()),
        _ => answer_all(&extraction(body)),
    })
    .await;
    let used = async {
        while late.calls() < 4 {
            assert_complete(&take(&setting, 40).await.unwrap(), 40);
        }
    };
    tokio::time::timeout(STUCK, used).await.expect("it never joined");
}

#[tokio::test]
async fn the_system_is_asked_for_names_and_a_name_stands_alone() {
    let a = Named::start("a").await;
    let connect = |urls: Vec<String>| async move {
        Hosts::connect(&urls, None, &Trust::default(), Deadlines::default()).await
    };
    let local = format!("dns+http://localhost:{}", a.address().port());
    let setting = start_with(
        connect(vec![local.clone()]).await.unwrap(),
        source(RowKind::Values),
        retry(),
    );
    assert!(setting.hosts.are_loopback());
    assert_complete(&take(&setting, 40).await.unwrap(), 40);
    assert_eq!(a.asked().len(), 40);
    let error = connect(vec![a.host.url.clone(), local])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("must be the only address"), "{error}");
}

#[tokio::test]
async fn a_job_that_begins_after_all_of_them_have_moved_looks_for_them() {
    let a = Named::start("a").await;
    let b = Named::start("b").await;
    let answer = name_of(&[&a]);
    let hosts = found(&answer).await.unwrap();
    *answer.lock().unwrap() = Some(vec![b.address()]);
    drop(a);
    let load = hosts.first(|client| async move { client.load().await }).await;
    assert_eq!(load.unwrap().name.as_deref(), Some("b"));
}

#[tokio::test]
async fn what_is_pushed_again_takes_the_place_of_what_was_there() {
    let a = Named::start("a").await;
    let b = Named::start("b").await;
    let answer = name_of(&[&a]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    let push = |name, bytes: &'static [u8]| {
        let hosts = &setting.hosts;
        async move {
            hosts
                .push(UploadKind::Model, name, Bytes::from_static(bytes))
                .await
        }
    };
    let both = tokio::join!(push("one", b"1"), push("two", b"22"));
    assert_eq!((both.0.unwrap().bytes, both.1.unwrap().bytes), (1, 2));
    for _ in 0..3 {
        push("one", b"333").await.unwrap();
    }
    answer.lock().unwrap().as_mut().unwrap().push(b.address());
    setting.hosts.look_again().await;
    told(&setting.notices, &b, HostState::Up).await;
    let given = b.uploads.lock().unwrap().clone();
    assert_eq!(given, ["/v1/models/two", "/v1/models/one"]);
}

#[tokio::test]
async fn a_model_that_was_found_on_the_hosts_is_given_to_one_that_joins_without_it() {
    let found_there = ModelInfo {
        name: "published".to_owned(),
        sha256: "ab".to_owned(),
        bytes: 3,
        uploaded_at: 0,
        input: String::new(),
        input_shape: Vec::new(),
        joined_inputs: Vec::new(),
        cuts: Vec::new(),
        shared: true,
    };
    let a = Named::with_models("a", vec![found_there.clone()]).await;
    let b = Named::start("b").await;
    let c = Named::with_models("c", vec![found_there]).await;
    let answer = name_of(&[&a]);
    let setting = start_with(found(&answer).await.unwrap(), source(RowKind::Values), retry());
    let name = setting.hosts.name_of("ab").await.unwrap();
    let pin = UploadRef {
        name,
        sha256: "ab".to_owned(),
    };
    let bytes = Bytes::from_static(b"net");
    assert!(setting.hosts.keep(&pin, bytes).await.unwrap().skipped);
    *answer.lock().unwrap() = Some(vec![a.address(), b.address(), c.address()]);
    setting.hosts.look_again().await;
    for host in [&b, &c] {
        told(&setting.notices, host, HostState::Up).await;
    }
    let uploads = |host: &Named| host.uploads.lock().unwrap().clone();
    assert_eq!(uploads(&b), ["/v1/models/published"]);
    assert!(uploads(&a).is_empty() && uploads(&c).is_empty());
}
