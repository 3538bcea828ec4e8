//! Listings of thousands of keys.

use crate::contents::Habit;
use crate::server::S3Server;
use frostline_objects::{LARGEST_READ, ObjectError, Store};

/// Lists all keys in pages of `limit`. Returns them with the number of skipped names.
async fn all(store: &Store, limit: usize) -> (Vec<String>, u64) {
    let mut keys = Vec::new();
    let mut left_out = 0;
    let mut after = None;
    loop {
        let page = store.list(after.as_deref(), limit).await.unwrap();
        keys.extend(page.objects.into_iter().map(|object| object.sample.key));
        left_out += page.left_out.count;
        after = page.next;
        if after.is_none() {
            return (keys, left_out);
        }
    }
}

#[tokio::test]
async fn keys_with_escapes_and_backslashes_are_listed_and_read() {
    let server = S3Server::start().await;
    let mut keys = [
        "cat%2F1.jpg",
        "cat\\2.jpg",
        "cat/3%5c.jpg",
        "50%.jpg",
        "a+b & c.jpg",
        "a%2e.jpg",
    ];
    for key in keys {
        server.contents.put(&format!("root/{key}"), key);
    }
    keys.sort_unstable();
    let folder = tempfile::tempdir().unwrap();
    for key in keys {
        let path = folder.path().join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, key).unwrap();
    }
    let local = Store::open(folder.path().to_str().unwrap()).unwrap();
    for store in [server.open("s3://photos/root"), local] {
        assert_eq!(all(&store, 2).await, (keys.map(str::to_owned).into(), 0));
        for object in store.list(None, 10).await.unwrap().objects {
            let read = store.read_sample(&object.sample, LARGEST_READ).await.unwrap();
            assert_eq!(read, object.sample.key);
        }
    }
}

#[tokio::test]
async fn names_that_are_no_keys_are_left_out_counted_and_named() {
    let server = S3Server::start().await;
    let keys = ["a/1.jpg", "b.jpg", "c.jpg", "d/2.jpg"];
    let odd = [
        "/x.jpg",
        "a//1.jpg",
        "a/../2.jpg",
        "b./../c.jpg",
        "c\u{7f}.jpg",
        "z/./9.jpg",
        "%2e%2e/y.jpg",
    ];
    for key in keys.iter().chain(&odd).chain(&["folder/", "d/", ""]) {
        server.contents.put(&format!("root/{key}"), "x");
    }
    let store = server.open("s3://photos/root");
    for limit in [1, 2, 3, 1000] {
        let found = all(&store, limit).await;
        assert_eq!(
            found,
            (keys.map(str::to_owned).into(), odd.len() as u64),
            "pages of {limit}"
        );
    }
    let left_out = store.list(None, 1000).await.unwrap().left_out;
    assert_eq!(left_out.names.len(), 5);
    assert!(left_out.names.contains(&"a//1.jpg".to_owned()), "{left_out:?}");
}

#[tokio::test]
async fn a_page_without_a_key_is_not_the_end() {
    let server = S3Server::start().await;
    for number in 0..1500 {
        server.contents.put(&format!("root//{number}.jpg"), "x");
    }
    server.contents.put("root/a.jpg", "x");
    let found = all(&server.open("s3://photos/root"), 1000).await;
    assert_eq!(found, (vec!["a.jpg".to_owned()], 1500));
}

#[tokio::test]
async fn a_store_that_starts_over_for_every_page_gives_each_key_once() {
    let server = S3Server::start().await;
    let keys: Vec<String> = (0..1600).map(|number| format!("{number:04}.jpg")).collect();
    for key in &keys {
        server.contents.put(&format!("root/{key}"), "x");
    }
    let store = server.open("s3://photos/root");
    server.contents.behave(Habit::StartsOver);
    for limit in [1000, 300] {
        assert!(all(&store, limit).await == (keys.clone(), 0), "pages of {limit}");
    }
    server.contents.behave(Habit::NeverMoves);
    let first = store.list(None, 1000).await.unwrap();
    let error = store.list(first.next.as_deref(), 1000).await.unwrap_err();
    assert!(
        matches!(&error, ObjectError::Store { reason, .. } if reason.to_string().contains("starts over")),
        "{error}"
    );
}

#[tokio::test]
async fn a_store_whose_keys_are_not_in_the_order_of_their_bytes_gives_all_of_them() {
    // The order breaks inside an answer or between answers.
    for (in_folder, beside) in [(10, 10), (1000, 10), (1500, 1200)] {
        let server = S3Server::start().await;
        server.contents.behave(Habit::ByFolder);
        let in_folder = (0..in_folder).map(|number| format!("a/{number:04}.jpg"));
        let beside = (0..beside).map(|number| format!("a-{number:04}.jpg"));
        let mut keys: Vec<String> = in_folder.chain(beside).collect();
        keys.iter()
            .for_each(|key| server.contents.put(&format!("root/{key}"), "x"));
        keys.sort_unstable();
        let store = server.open("s3://photos/root");
        let mut listed = Vec::new();
        let mut refused = 0;
        let mut after: Option<String> = None;
        loop {
            match store.list(after.as_deref(), 1000).await {
                Ok(page) => {
                    listed.extend(page.objects.into_iter().map(|object| object.sample.key));
                    after = page.next;
                }
                Err(error) => {
                    assert!(error.to_string().contains("from the start again"), "{error}");
                    (after, refused) = (None, refused + 1);
                    listed.clear();
                    continue;
                }
            }
            if after.is_none() {
                break;
            }
        }
        assert!(
            listed == keys && refused < 2,
            "{} of {}",
            listed.len(),
            keys.len()
        );
    }
}

#[tokio::test]
async fn thousands_of_keys_come_in_pages_that_join_to_all_of_them() {
    let server = S3Server::start().await;
    let mut keys: Vec<String> = (0..3456)
        .map(|number| format!("class {}/{number}.jpg", number % 7))
        .collect();
    for key in &keys {
        server.contents.put(&format!("root/{key}"), "x");
    }
    server.contents.put("other/a.jpg", "x");
    server.contents.put("root.jpg", "x");
    keys.sort_unstable();
    let store = server.open("s3://photos/root");
    for limit in [1000, 999, 5000] {
        let mut seen = Vec::new();
        let mut after = None;
        let mut pages = 0;
        loop {
            let page = store.list(after.as_deref(), limit).await.unwrap();
            assert!(page.objects.len() <= limit.min(1000));
            seen.extend(page.objects.into_iter().map(|object| object.sample.key));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, keys, "pages of {limit}");
        assert_eq!(pages, 4, "pages of {limit}");
    }
}

/// A data set of a tool that stores the files in a cache and links to them.
#[tokio::test]
async fn a_folder_of_links_out_of_it_says_so_on_any_page() {
    let cache = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("cat")).unwrap();
    for number in 0..7 {
        let file = cache.path().join(format!("{number:x}"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, root.path().join(format!("cat/{number}.jpg"))).unwrap();
    }
    for name in ["cat/0.txt", "cat/3.txt", "cat/9.txt"] {
        std::fs::write(root.path().join(name), "x").unwrap();
    }
    let store = Store::open(root.path().to_str().unwrap()).unwrap();
    for limit in [1, 2, 100] {
        let mut left_out = frostline_tensor::SkippedNames::default();
        let mut after = None;
        loop {
            let page = store.list(after.as_deref(), limit).await.unwrap();
            left_out.extend(page.left_out);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let first = format!("cat/0.jpg -> {}", cache.path().join("0").display());
        assert_eq!((left_out.count, left_out.links.count), (0, 7), "pages of {limit}");
        assert_eq!(left_out.links.first, first);
    }
}
