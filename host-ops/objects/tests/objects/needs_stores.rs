//! Tests against other servers, started by `cargo xtask stores`.

use bytes::Bytes;
use frostline_e2e::RealStore;
use frostline_objects::{LARGEST_READ, ObjectError, Store};
use frostline_tensor::SampleRef;
use futures::{StreamExt, stream};

/// Number of keys in more than two pages.
const THOUSANDS: usize = 2100;

/// Concurrent writes, to fill a bucket in seconds.
const AT_ONCE: usize = 16;

macro_rules! on {
    ($($server:ident),*) => {$(
        mod $server {
            on!(of $server: lists_by_the_thousand, reads_whole_and_by_range, takes_keys_literally, tells_what_was_replaced,
                creates_only_once, deletes, refuses_wrong_credentials, names_a_bucket_that_is_not_there);
        }
    )*};
    (of $server:ident: $($test:ident),*) => {$(
        #[tokio::test]
        async fn $test() {
            super::$test(&super::running(stringify!($server))).await;
        }
    )*};
}

on!(azurite, fake_gcs, swift, moto);

fn running(name: &str) -> RealStore {
    RealStore::running(name).unwrap()
}

fn open(server: &RealStore, root: &str) -> Store {
    Store::open_with(root, server.settings()).unwrap()
}

async fn fill(store: &Store, keys: impl IntoIterator<Item = String>) {
    let put = |key: String| async move {
        let bytes = Bytes::from(key.clone());
        store.put(&key, bytes).await.unwrap();
    };
    stream::iter(keys)
        .map(put)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
}

async fn lists_by_the_thousand(server: &RealStore) {
    let root = server.root("listed");
    let mut keys: Vec<String> = (0..THOUSANDS)
        .map(|number| format!("class {}/{number}.jpg", number % 7))
        .collect();
    let store = open(server, &root);
    fill(&store, keys.clone()).await;
    // A neighbor with the same prefix.
    fill(&open(server, &format!("{root}-2")), ["a.jpg".to_owned()]).await;
    keys.sort_unstable();
    for limit in [1000, 999] {
        let mut seen = Vec::new();
        let mut after = None;
        let mut pages = 0;
        loop {
            let page = store.list(after.as_deref(), limit).await.unwrap();
            assert!(page.objects.len() <= limit);
            seen.extend(page.objects.into_iter().map(|object| object.sample.key));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(
            seen == keys,
            "pages of {limit}: {} of {} keys",
            seen.len(),
            keys.len()
        );
        assert_eq!(pages, 3);
    }
    let below = open(server, &format!("{root}/class 3/"));
    assert_eq!(below.list(None, 1000).await.unwrap().objects.len(), THOUSANDS / 7);
    assert!(
        open(server, &format!("{root}/clas"))
            .list(None, 10)
            .await
            .unwrap()
            .objects
            .is_empty()
    );
    let came = format!("{THOUSANDS} keys in 3 pages");
    server.record("long listings", &came).unwrap();
}

async fn reads_whole_and_by_range(server: &RealStore) {
    let store = open(server, &server.root("read"));
    let photo: Bytes = (0..300_000u32).map(|byte| (byte / 7) as u8).collect();
    store.put("a b.jpg", photo.clone()).await.unwrap();
    store.put("empty.jpg", Bytes::new()).await.unwrap();
    assert!(store.read("a b.jpg").await.unwrap() == photo);
    assert_eq!(store.size(&SampleRef::new("a b.jpg")).await.unwrap(), 300_000);
    for (range, part) in [
        (1000..2000, 1000..2000),
        (299_000..400_000, 299_000..300_000),
        (300_000..300_001, 0..0),
        (400_000..500_000, 0..0),
        (5..5, 0..0),
    ] {
        let read = store
            .read_range(&SampleRef::new("a b.jpg"), range.clone())
            .await
            .unwrap();
        assert!(read == photo.slice(part), "{range:?}: {} bytes", read.len());
    }
    assert_eq!(store.read("empty.jpg").await.unwrap(), "");
    assert_eq!(
        store
            .read_range(&SampleRef::new("empty.jpg"), 0..10)
            .await
            .unwrap(),
        ""
    );
    let listed = store.list(None, 10).await.unwrap().objects;
    let sizes: Vec<_> = listed
        .iter()
        .map(|object| (object.sample.key.as_str(), object.size))
        .collect();
    assert_eq!(sizes, [("a b.jpg", 300_000), ("empty.jpg", 0)]);
    for object in &listed {
        let read = store.read_sample(&object.sample, LARGEST_READ).await.unwrap();
        assert_eq!(read.len() as u64, object.size);
    }
    let gone = store.read("not there.jpg").await.unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
    server
        .record(
            "read whole and by range",
            "also past the end and of an empty object",
        )
        .unwrap();
}

async fn takes_keys_literally(server: &RealStore) {
    let store = open(server, &server.root("odd keys"));
    let mut keys = [
        "50%.jpg",
        "a b/c  d.jpg",
        "a%20b.jpg",
        "a%2Fb.jpg",
        "a+b & c=d.jpg",
        "q?x#y.jpg",
        "<R&B> \"'.jpg",
        "[1]{2}^|`~.jpg",
        "a:b;c@d,e!$*().jpg",
        "\u{fc}\u{df}.jpg",
        "u\u{308}.jpg",
        "\u{732b}/\u{1f408}.jpg",
        "back\\slash.jpg",
        "no ending",
    ];
    keys.sort_unstable();
    let mut refused = Vec::new();
    for key in keys {
        store.put(key, Bytes::from(key)).await.unwrap();
    }
    let listed = store.list(None, 100).await.unwrap();
    let found: Vec<_> = listed
        .objects
        .iter()
        .map(|object| object.sample.key.as_str())
        .collect();
    for key in keys {
        if !found.contains(&key) {
            refused.push(key);
        }
        assert_eq!(store.read(key).await.unwrap(), key);
    }
    // Azure reads a backslash as a slash.
    let known: &[&str] = if server.bucket().starts_with("az:") {
        &["back\\slash.jpg"]
    } else {
        &[]
    };
    assert_eq!(
        (refused.as_slice(), found.len()),
        (known, keys.len()),
        "{found:?}"
    );
    for object in &listed.objects {
        store.read_sample(&object.sample, LARGEST_READ).await.unwrap();
    }
    for after in keys {
        let page = store.list(Some(after), 100).await.unwrap();
        assert!(
            page.objects
                .iter()
                .all(|object| object.sample.key.as_str() > after),
            "after {after}"
        );
    }
    let came = match known {
        [] => format!("{} of {0}", keys.len()),
        _ => format!(
            "{} of {}: a backslash becomes a slash",
            keys.len() - 1,
            keys.len()
        ),
    };
    server.record("odd keys", &came).unwrap();
}

async fn tells_what_was_replaced(server: &RealStore) {
    let store = open(server, &server.root("replaced"));
    fill(&store, ["a.jpg".to_owned(), "b.jpg".to_owned()]).await;
    let listed = store.list(None, 10).await.unwrap().objects;
    assert!(
        listed.iter().all(|object| object.sample.etag.is_some()),
        "{listed:?}"
    );
    store.put("a.jpg", Bytes::from("other")).await.unwrap();
    let error = store
        .read_sample(&listed[0].sample, LARGEST_READ)
        .await
        .unwrap_err();
    assert!(matches!(error, ObjectError::Changed { .. }), "{error}");
    assert_eq!(
        store.read_sample(&listed[1].sample, LARGEST_READ).await.unwrap(),
        "b.jpg"
    );
    let again = store.list(None, 10).await.unwrap().objects;
    assert_eq!(
        store.read_sample(&again[0].sample, LARGEST_READ).await.unwrap(),
        "other"
    );
    server
        .record("replaced since listed", "refused; the error names the object")
        .unwrap();
}

async fn creates_only_once(server: &RealStore) {
    let store = open(server, &server.root("created"));
    let mine = |number: usize| Bytes::from(format!("{number}"));
    if server.supports_conditional_creation() {
        let puts = (0..AT_ONCE).map(|number| store.put_new("at once", mine(number)));
        let done: Vec<_> = futures::future::join_all(puts).await;
        let winners: Vec<usize> = (0..AT_ONCE).filter(|number| done[*number].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{done:?}");
        assert!(
            done.iter()
                .flat_map(|done| done.as_ref().err())
                .all(ObjectError::is_already_there),
            "{done:?}"
        );
        assert_eq!(store.read("at once").await.unwrap(), mine(winners[0]));
    } else {
        let error = store.put_new("at once", mine(0)).await.unwrap_err();
        assert!(matches!(error, ObjectError::Unsupported { .. }), "{error}");
    }
    store.put_same("same", mine(1)).await.unwrap();
    let again = store.put_same("same", mine(1)).await.unwrap_err();
    assert!(again.is_already_there(), "{again}");
    assert_eq!(store.read("same").await.unwrap(), mine(1));
    let came = if server.supports_conditional_creation() {
        format!("{AT_ONCE} concurrent creates, a single success")
    } else {
        "it answers 501".to_owned()
    };
    server.record("created only once", &came).unwrap();
}

async fn deletes(server: &RealStore) {
    let store = open(server, &server.root("deleted"));
    fill(&store, ["a b/\u{fc}.jpg".to_owned(), "a.jpg".to_owned()]).await;
    store.delete("a b/\u{fc}.jpg").await.unwrap();
    let gone = store.read("a b/\u{fc}.jpg").await.unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
    if let Err(error) = store.delete("a b/\u{fc}.jpg").await {
        assert!(error.is_not_found(), "{error}");
    }
    assert_eq!(store.list(None, 10).await.unwrap().objects.len(), 1);
    server.record("deleted", "also a missing object").unwrap();
}

async fn refuses_wrong_credentials(server: &RealStore) {
    let Some(settings) = server.wrong_settings() else {
        server
            .record("wrong credentials", "not tried: it accepts any credentials")
            .unwrap();
        return;
    };
    let root = server.root("wrong");
    let store = Store::open_with(&root, settings.clone()).unwrap();
    let mut errors = vec![
        store.list(None, 10).await.map(drop).unwrap_err(),
        store.read("a.jpg").await.map(drop).unwrap_err(),
        store.put("a.jpg", Bytes::new()).await.unwrap_err(),
        store.delete("a.jpg").await.unwrap_err(),
    ];
    if server.supports_conditional_creation() {
        // Some servers check the condition before the signature.
        errors.push(store.put_new("a.jpg", Bytes::new()).await.unwrap_err());
    }
    for error in &errors {
        let text = error.to_string();
        assert!(matches!(error, ObjectError::Denied { .. }), "{error:?}");
        let named = settings.keys().filter(|name| name.ends_with("KEY"));
        assert!(
            named.clone().count() > 0 && named.clone().all(|name| text.contains(name.as_str())),
            "{text}"
        );
        let secrets = settings.iter().filter(|(name, _)| name.ends_with("KEY"));
        assert!(
            secrets.clone().all(|(_, value)| !text.contains(value.as_str())),
            "{text}"
        );
    }
    server
        .record("wrong credentials", "refused; the error names the setting")
        .unwrap();
}

async fn names_a_bucket_that_is_not_there(server: &RealStore) {
    let store = open(server, &format!("{}-not-there/set", server.bucket()));
    let list = store.list(None, 10).await.map(drop).unwrap_err();
    let read = store.read("a.jpg").await.map(drop).unwrap_err();
    let put = store.put("a.jpg", Bytes::new()).await.unwrap_err();
    let is_named = |error: &ObjectError| matches!(error, ObjectError::NoSuchRoot { .. });
    let named: Vec<&str> = [("list", &list), ("read", &read), ("write", &put)]
        .into_iter()
        .filter_map(|(what, error)| is_named(error).then_some(what))
        .collect();
    // This emulator answers 500 to a listing, and reports a missing object for the other requests.
    let expected: &[&str] = if server.bucket().starts_with("gs:") {
        &[]
    } else {
        &["list", "read", "write"]
    };
    assert_eq!(named, expected, "{list:?} {read:?} {put:?}");
    let came = if expected.is_empty() {
        "failed; the server gives no reason"
    } else {
        "named"
    };
    server.record("no such bucket", came).unwrap();
}
