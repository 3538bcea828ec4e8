//! Thousands of keys.

use crate::server::S3Server;

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
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = store.list(after.as_deref(), limit).await.unwrap();
            assert!(page.objects.len() <= limit.min(1000));
            seen.extend(page.objects.into_iter().map(|object| object.key));
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
