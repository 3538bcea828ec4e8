//! Token files that change while in use.

use super::fetching::{answer_all, assert_complete, log, retry, source, start_with, take};
use crate::{ClientError, HostClient, Hosts, Notice, RowKind, Token, UploadKind};
use bytes::Bytes;
use frostline_fake_host::{FakeHost, Reply, extraction};
use frostline_wire::{ErrorClass, Layout, ObjectInfo, ObjectPage, SampleRef, UPLOAD_OFFSET};
use futures::future::join_all;
use http::Method;
use http::request::Parts;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;

const UNAUTHORIZED: Reply = Reply::Refused(401, ErrorClass::Unauthorized, None);

fn token_file(folder: &TempDir) -> PathBuf {
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    file
}

fn client(host: &FakeHost, file: &Path) -> HostClient {
    HostClient::new(&host.url, Some(Token::read(file).unwrap())).unwrap()
}

/// Token state of a host, which starts to refuse the first token at a request selected by the test.
struct Owner {
    file: PathBuf,
    rotated: Mutex<bool>,
}

impl Owner {
    fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            rotated: Mutex::new(false),
        }
    }

    /// Makes the second token the valid one and writes it to the file.
    fn rotate(&self) {
        let mut rotated = self.rotated.lock().unwrap();
        if !*rotated {
            let beside = self.file.with_extension("new");
            std::fs::write(&beside, "second\n").unwrap();
            std::fs::rename(&beside, &self.file).unwrap();
            *rotated = true;
        }
    }

    fn knows(&self, parts: &Parts) -> bool {
        let right = match *self.rotated.lock().unwrap() {
            true => "Bearer second",
            false => "Bearer first",
        };
        parts.headers["authorization"] == right
    }
}

#[tokio::test]
async fn a_token_that_is_replaced_during_a_fetch_is_read_again() {
    let folder = TempDir::new().unwrap();
    let file = token_file(&folder);
    let owner = Owner::new(&file);
    let host = FakeHost::start(move |number, parts, body| {
        if number == 3 {
            owner.rotate();
        }
        match owner.knows(parts) {
            true => answer_all(&extraction(body)),
            false => UNAUTHORIZED,
        }
    })
    .await;
    let setting = start_with(client(&host, &file).into(), source(RowKind::Values), retry());
    assert_complete(&take(&setting, 80).await.unwrap(), 80);
    assert!(setting.notices.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_token_that_is_replaced_during_a_listing_is_read_again() {
    let folder = TempDir::new().unwrap();
    let file = token_file(&folder);
    let owner = Owner::new(&file);
    let host = FakeHost::start(move |_, parts, _| {
        let second = parts.uri.query().unwrap().contains("after=");
        if second {
            owner.rotate();
        }
        if !owner.knows(parts) {
            return UNAUTHORIZED;
        }
        let key = if second { "b" } else { "a" };
        Reply::json(&ObjectPage {
            objects: vec![ObjectInfo {
                sample: SampleRef::new(key),
                size: 1,
                label: None,
                changed: None,
            }],
            next: (!second).then(|| "a".to_owned()),
            ..ObjectPage::default()
        })
    })
    .await;
    let listing = client(&host, &file).listing("data", Layout::Auto).await;
    assert_eq!(listing.unwrap().len(), 2);
    assert_eq!(host.calls(), 3);
}

#[tokio::test]
async fn a_token_that_is_replaced_during_an_upload_is_read_again() {
    let folder = TempDir::new().unwrap();
    let file = token_file(&folder);
    let owner = Owner::new(&file);
    let host = FakeHost::start(move |_, parts, body| {
        if parts.method == Method::PUT {
            owner.rotate();
        }
        match parts.method {
            _ if !owner.knows(parts) => UNAUTHORIZED,
            Method::HEAD => Reply::Head(vec![(UPLOAD_OFFSET, "1".to_owned())]),
            Method::PUT => {
                assert_eq!(body, b"ayers");
                Reply::json(&())
            }
            _ => Reply::Refused(404, ErrorClass::NotFound, None),
        }
    })
    .await;
    let (notices, told) = log();
    let layers = Bytes::from_static(b"layers");
    let client = client(&host, &file);
    let pushed = client.push(UploadKind::Model, "model", layers, &told).await;
    assert!(!pushed.unwrap().skipped);
    let notices = notices.lock().unwrap();
    let progress = |notice: &Notice| matches!(notice, Notice::Uploading { .. });
    assert!(notices.iter().all(progress), "{notices:?}");
    // The model lookup, then the offset query and the upload. The last two are repeated with the new token.
    assert_eq!(host.calls(), 5);
}

#[tokio::test]
async fn a_token_that_is_refused_and_not_replaced_ends_the_job_as_ever() {
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |_| (),
        |file| std::fs::remove_file(file).unwrap(),
        |file| std::fs::write(file, "").unwrap(),
        |file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
    ];
    for change in changes {
        let folder = TempDir::new().unwrap();
        let file = token_file(&folder);
        let host = FakeHost::start(|_, _, _| UNAUTHORIZED).await;
        let client = client(&host, &file);
        change(&file);
        let setting = start_with(client.into(), source(RowKind::Values), retry());
        let error = take(&setting, 2).await.unwrap_err();
        assert_eq!(error.class(), Some(ErrorClass::Unauthorized), "{error}");
        assert!(!format!("{error} {error:?}").contains("first"));
        assert_eq!(host.calls(), 1);
    }
}

#[tokio::test]
async fn a_token_that_one_of_two_hosts_refuses_is_the_reported_error() {
    for status in [401, 403] {
        let accepting = FakeHost::start(|_, parts, body| match parts.uri.path() {
            "/v1/extractions" => answer_all(&extraction(body)),
            "/v1/objects" => Reply::json(&ObjectPage::default()),
            _ if parts.method == Method::PUT => Reply::json(&()),
            _ => Reply::Refused(404, ErrorClass::NotFound, None),
        });
        let proxy = move || Reply::Answered(status, Bytes::from_static(b"<html>"));
        let refusing = FakeHost::start(move |_, _, _| proxy()).await;
        let accepting = accepting.await;
        for urls in [[&accepting.url, &refusing.url], [&refusing.url, &accepting.url]] {
            let clients = urls.map(|url| HostClient::new(url, Some(Token::new("first").unwrap())).unwrap());
            let setting = start_with(
                Hosts::new(clients.into()).unwrap(),
                source(RowKind::Values),
                retry(),
            );
            let model = Bytes::from_static(b"layers");
            let pushed = setting.hosts.push(UploadKind::Model, "model", model).await;
            let fetched = take(&setting, 40).await;
            let mut errors = vec![pushed.unwrap_err(), fetched.unwrap_err()];
            // The first host lists the data.
            match setting.hosts.listing("data", Layout::Auto).await {
                Ok(_) => assert_eq!(urls[0], &accepting.url),
                Err(error) => errors.push(error),
            }
            for error in errors {
                assert_eq!(error.class(), Some(ErrorClass::Unauthorized), "{error}");
                assert!(error.to_string().contains(&refusing.url), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_that_is_refused_after_failures_is_the_reported_error() {
    let host = FakeHost::start(|number, _, _| match number {
        0 => Reply::Refused(500, ErrorClass::Host, None),
        _ => UNAUTHORIZED,
    });
    let host = host.await;
    let client = HostClient::new(&host.url, Some(Token::new("first").unwrap())).unwrap();
    let setting = start_with(client.into(), source(RowKind::Values), retry());
    let error = take(&setting, 2).await.unwrap_err();
    assert_eq!(error.class(), Some(ErrorClass::Unauthorized), "{error}");
    assert_eq!(
        setting.notices.lock().unwrap().len(),
        1,
        "it was asked again once"
    );

    let host = FakeHost::start(|number, parts, _| match (&parts.method, number) {
        (&Method::GET, _) => Reply::Refused(404, ErrorClass::NotFound, None),
        (_, 0..=2) => Reply::Refused(500, ErrorClass::Host, None),
        _ => UNAUTHORIZED,
    });
    let host = host.await;
    let client = HostClient::new(&host.url, Some(Token::new("first").unwrap())).unwrap();
    let (_, told) = log();
    let layers = Bytes::from_static(b"layers");
    let error = client
        .push(UploadKind::Model, "model", layers, &told)
        .await
        .unwrap_err();
    assert_eq!(error.class(), Some(ErrorClass::Unauthorized), "{error}");
    assert!(error.to_string().contains("the model model"), "{error}");
}

#[tokio::test]
async fn a_second_token_that_is_refused_as_well_ends_the_job() {
    let folder = TempDir::new().unwrap();
    let file = token_file(&folder);
    let host = FakeHost::start(|_, _, _| UNAUTHORIZED).await;
    let client = client(&host, &file);
    std::fs::write(&file, "second").unwrap();
    let error = client.load().await.unwrap_err();
    assert_eq!(error.class(), Some(ErrorClass::Unauthorized), "{error}");
    assert_eq!(host.calls(), 2);
}

#[tokio::test]
async fn a_token_that_came_from_no_file_stays() {
    let host = FakeHost::start(|_, _, _| UNAUTHORIZED).await;
    let client = HostClient::new(&host.url, Some(Token::new("first").unwrap())).unwrap();
    let error = client.load().await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error}");
    assert_eq!(host.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_that_are_refused_at_once_read_the_file_once_and_not_again_too_soon() {
    let folder = TempDir::new().unwrap();
    let file = token_file(&folder);
    let token = Token::read(&file).unwrap();
    let first = token.header();
    let started = tokio::time::Instant::now();
    let renewed = join_all((0..20).map(|_| token.is_renewed(&first))).await;
    assert!(!renewed.contains(&true));
    // A second read would have waited.
    assert!(started.elapsed().is_zero());
    std::fs::write(&file, "second").unwrap();
    tokio::time::advance(std::time::Duration::from_millis(1)).await;
    let renewed = join_all((0..20).map(|_| token.is_renewed(&first))).await;
    assert!(!renewed.contains(&false));
    let waited = started.elapsed().as_millis();
    assert!((2000..2010).contains(&waited), "{waited}");
    // Late callers find the new token.
    assert!(token.clone().is_renewed(&first).await);
    assert!(started.elapsed().as_millis() < 2010);
}
