//! Keys cannot leave the root in any store.

use crate::server::S3Server;
use bytes::Bytes;
use frostline_objects::{ObjectError, Store};
use frostline_tensor::SampleRef;
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keys that a malicious tenant might send.
fn hostile() -> Vec<String> {
    let mut keys: Vec<String> = [
        "",
        "/",
        ".",
        "..",
        "../secret.txt",
        "a/../../secret.txt",
        "a/..",
        "/etc/passwd",
        "//secret.txt",
        "a//b",
        "a/",
        "./a",
        "%2e%2e/secret.txt",
        "%2E%2E%2Fsecret.txt",
        "a%00b",
        "..%5csecret.txt",
        "..\\secret.txt",
        "a\0b",
        "a\nb",
        "a\u{7f}b",
        "a\u{85}b",
    ]
    .map(str::to_owned)
    .into();
    keys.push("a/".repeat(2000) + "b");
    keys.push("a".repeat(1025));
    keys.push("ü".repeat(513));
    keys
}

async fn refuses_hostile_keys(store: &Store) {
    for key in hostile() {
        let shown: String = key.chars().take(40).collect();
        let attempts = [
            ("read", store.read(&key).await.map(drop)),
            (
                "range",
                store.read_range(&SampleRef::new(&key), 0..10).await.map(drop),
            ),
            (
                "empty range",
                store.read_range(&SampleRef::new(&key), 0..0).await.map(drop),
            ),
            ("size", store.size(&SampleRef::new(&key)).await.map(drop)),
            ("put", store.put(&key, Bytes::new()).await),
            ("put_new", store.put_new(&key, Bytes::new()).await),
            ("delete", store.delete(&key).await),
        ];
        for (what, result) in attempts {
            let error = result.expect_err(what);
            assert!(
                matches!(&error, ObjectError::Key { .. }),
                "{what} {shown:?}: {error:?}"
            );
            assert!(
                error.to_string().len() < 600,
                "{what} {shown:?} is repeated in full"
            );
        }
    }
}

#[tokio::test]
async fn keys_stay_inside_every_kind_of_store() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("a")).unwrap();
    std::fs::write(folder.path().join("secret.txt"), "secret").unwrap();
    refuses_hostile_keys(&Store::open(root.to_str().unwrap()).unwrap()).await;
    assert_eq!(
        std::fs::read_dir(&root).unwrap().count(),
        1,
        "nothing was written"
    );
    refuses_hostile_keys(&Store::open("memory:///root").unwrap()).await;
    let server = S3Server::start().await;
    server.contents.put("secret.txt", "secret");
    refuses_hostile_keys(&server.open("s3://photos/root")).await;
    assert_eq!(server.gets(), 0, "invalid keys do not reach the store");
}

#[tokio::test]
async fn a_neighbors_prefix_that_starts_alike_is_out_of_reach() {
    let server = S3Server::start().await;
    server.contents.put("acme/a.jpg", "mine");
    server.contents.put("acme-two/b.jpg", "not mine");
    let store = server.open("s3://photos/acme");
    let keys: Vec<String> = store
        .list(None, 10)
        .await
        .unwrap()
        .objects
        .into_iter()
        .map(|object| object.sample.key)
        .collect();
    assert_eq!(keys, ["a.jpg"]);
    // `after` is compared, never followed.
    for after in ["../acme-two", "-two/", "/", ""] {
        let page = store.list(Some(after), 10).await.unwrap();
        assert!(
            page.objects.iter().all(|object| object.sample.key == "a.jpg"),
            "{after}"
        );
    }
}

#[tokio::test]
async fn names_that_are_no_text_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        &b"a.jpg"[..],
        b"\xff\xfe.jpg",
        b"caf\xe9.jpg",
        b"tab\t.jpg",
        "\u{fc}.jpg".as_bytes(),
    ] {
        std::fs::write(folder.path().join(OsStr::from_bytes(name)), "x").unwrap();
    }
    std::fs::create_dir(folder.path().join(OsStr::from_bytes(b"\xff"))).unwrap();
    std::fs::write(folder.path().join(OsStr::from_bytes(b"\xff/b.jpg")), "x").unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let page = store.list(None, 10).await.unwrap();
    let keys: Vec<&str> = page
        .objects
        .iter()
        .map(|object| object.sample.key.as_str())
        .collect();
    assert_eq!(keys, ["a.jpg", "\u{fc}.jpg"]);
}

#[tokio::test]
async fn a_link_made_after_the_store_was_opened_leads_nowhere_either() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("class")).unwrap();
    std::fs::write(folder.path().join("secret.txt"), "secret").unwrap();
    std::fs::write(root.join("class/a.jpg"), "a").unwrap();
    let store = Store::open(root.to_str().unwrap()).unwrap();
    assert_eq!(store.read("class/a.jpg").await.unwrap(), "a");
    symlink(folder.path(), root.join("class/up")).unwrap();
    symlink("../../secret.txt", root.join("class/b.jpg")).unwrap();
    symlink(root.join("class/a.jpg"), root.join("class/inside.jpg")).unwrap();
    for key in ["class/up/secret.txt", "class/b.jpg"] {
        for result in [
            store.read(key).await.map(drop),
            store.size(&SampleRef::new(key)).await.map(drop),
            store.put(key, Bytes::from("mine now")).await,
            store.delete(key).await,
        ] {
            assert!(
                matches!(&result, Err(ObjectError::Key { .. })),
                "{key}: {result:?}"
            );
        }
    }
    assert_eq!(store.read("class/inside.jpg").await.unwrap(), "a");
    let secret = std::fs::read_to_string(folder.path().join("secret.txt")).unwrap();
    assert_eq!(secret, "secret");
}

#[tokio::test]
async fn a_pipe_and_a_socket_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    rustix::fs::mknodat(CWD, folder.path().join("pipe.jpg"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(folder.path().join("socket.jpg")).unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    for key in ["pipe.jpg", "socket.jpg"] {
        for result in [
            store.read(key).await.map(drop),
            store.size(&SampleRef::new(key)).await.map(drop),
        ] {
            // Waiting for a writer would exceed the deadline.
            assert!(
                matches!(&result, Err(ObjectError::Store { .. })),
                "{key}: {result:?}"
            );
        }
    }
    assert!(store.list(None, 10).await.unwrap().objects.is_empty());
}

mod long {
    use super::*;

    #[tokio::test]
    async fn a_link_that_is_swapped_meanwhile_leads_nowhere_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("class")).unwrap();
        std::fs::write(root.join("class/a.jpg"), "a").unwrap();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        for name in ["a.jpg", "secret.jpg"] {
            std::fs::write(folder.path().join("outside").join(name), "secret").unwrap();
        }
        symlink("../outside", root.join("trap")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = root.clone();
        let seen = Arc::clone(&stop);
        let swaps = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let class = stopped.join("class");
                let trap = stopped.join("trap");
                rustix::fs::renameat_with(CWD, class, CWD, trap, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let store = Store::open(root.to_str().unwrap()).unwrap();
        for _ in 0..3000 {
            if let Ok(read) = store.read("class/a.jpg").await {
                assert_eq!(read, "a");
            }
            if let Ok(page) = store.list(None, 10).await {
                let keys = page.objects.iter().map(|object| &object.sample.key);
                assert_eq!(keys.filter(|key| key.contains("secret")).count(), 0);
            }
            store.put("class/b.jpg", Bytes::from("b")).await.ok();
        }
        stop.store(true, Ordering::Relaxed);
        swaps.join().unwrap();
        assert!(
            !folder.path().join("outside/b.jpg").exists(),
            "the root must contain all written files"
        );
    }
}
