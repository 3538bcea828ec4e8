//! Web servers with and without WebDAV listings.

use crate::server::{Answer, Server, endless, whole};
use crate::version;
use bytes::Bytes;
use frostline_objects::{Guard, LARGEST_READ, ObjectError, ReadRoom, Store};
use frostline_tensor::{BoxFuture, OpError, SampleRef};
use hyper::body::Incoming;
use hyper::header::{CONTENT_RANGE, ETAG, LOCATION, RANGE};
use hyper::{Request, Response, StatusCode};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PHOTO: &[u8] = b"0123456789";

/// Optional abilities of the test server.
#[derive(Debug, Clone, Copy)]
struct Abilities {
    lists: bool,
    ranges: bool,
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(whole(body));
    *answer.status_mut() = status;
    answer
}

/// Serves `/photos/b 1.jpg` and `/photos/a/2.jpg`.
async fn serve(request: Request<Incoming>, abilities: Abilities) -> io::Result<Answer> {
    let path = request.uri().path();
    let range = request.headers().get(RANGE).filter(|_| abilities.ranges);
    Ok(match (request.method().as_str(), path) {
        ("PROPFIND", "/photos") if abilities.lists => answer(StatusCode::MULTI_STATUS, listing()),
        ("PROPFIND", _) => answer(StatusCode::METHOD_NOT_ALLOWED, "<html>no such method</html>"),
        ("GET" | "HEAD", "/photos/b%201.jpg" | "/photos/a/2.jpg") => {
            let mut found = match range {
                Some(range) => partial(range.to_str().unwrap()),
                None => answer(StatusCode::OK, PHOTO),
            };
            found.headers_mut().insert(ETAG, "\"one\"".parse().unwrap());
            found
        }
        ("GET" | "HEAD", moved) if moved.starts_with("/photos/moved/") => {
            // The path contains the target of the redirect.
            let to = moved.trim_start_matches("/photos/moved/").replace("%3A", ":");
            let mut found = answer(StatusCode::FOUND, "");
            found
                .headers_mut()
                .insert(LOCATION, format!("http://{to}").parse().unwrap());
            found
        }
        _ => answer(StatusCode::NOT_FOUND, "nothing here"),
    })
}

fn partial(range: &str) -> Answer {
    let (start, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (start, last): (usize, usize) = (start.parse().unwrap(), last.parse().unwrap());
    let mut found = answer(StatusCode::PARTIAL_CONTENT, &PHOTO[start..=last]);
    let part = format!("bytes {start}-{last}/{}", PHOTO.len());
    found.headers_mut().insert(CONTENT_RANGE, part.parse().unwrap());
    found
}

fn listing() -> String {
    let entry = |href: &str, kind: &str| {
        format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop>{kind}<D:getetag>\"one\"</D:getetag>\
             <D:getlastmodified>Sat, 21 Nov 2026 10:00:00 GMT</D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status>\
             </D:propstat></D:response>"
        )
    };
    let folder = "<D:resourcetype><D:collection/></D:resourcetype>";
    let file = "<D:resourcetype/><D:getcontentlength>10</D:getcontentlength>";
    format!(
        "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">{}{}{}{}{}</D:multistatus>",
        entry("/photos/", folder),
        entry("/photos/b%201.jpg", file),
        entry("/photos/a/", folder),
        entry("/photos/a/2.jpg", file),
        entry("/photos/line%0Abreak.jpg", file),
    )
}

async fn open(abilities: Abilities) -> (Server, Store) {
    let server = Server::start(move |request| serve(request, abilities)).await;
    let store = Store::open_with(&format!("http://{}/photos/", server.address), []).unwrap();
    (server, store)
}

#[tokio::test]
async fn a_webdav_server_is_a_store_to_read_from() {
    let (_server, store) = open(Abilities {
        lists: true,
        ranges: true,
    })
    .await;
    let page = store.list(None, 1).await.unwrap();
    assert_eq!(page.objects[0].sample.key, "a/2.jpg");
    let rest = store.list(page.next.as_deref(), 10).await.unwrap();
    assert_eq!((rest.objects.len(), rest.next), (1, None));
    assert_eq!(page.left_out.count, 0);
    assert_eq!(rest.left_out.names, ["line\\nbreak.jpg"]);
    let listed = &rest.objects[0];
    assert_eq!((listed.sample.key.as_str(), listed.size), ("b 1.jpg", 10));
    assert_eq!(
        store.read_sample(&listed.sample, LARGEST_READ).await.unwrap(),
        PHOTO
    );
    assert_eq!(
        store.read_range(&SampleRef::new("a/2.jpg"), 2..5).await.unwrap(),
        "234"
    );
    assert_eq!(store.size(&SampleRef::new("a/2.jpg")).await.unwrap(), 10);
    // This server ignores the condition, but the etag in its answer differs.
    assert!(matches!(
        store.read_sample(&version("a/2.jpg", "two"), LARGEST_READ).await,
        Err(ObjectError::Changed { .. })
    ));
    assert!(matches!(
        store.read("c.jpg").await,
        Err(ObjectError::NotFound { .. })
    ));
    for result in [
        store.put("c.jpg", Bytes::new()).await,
        store.put_new("c.jpg", Bytes::new()).await,
        store.delete("a/2.jpg").await,
    ] {
        assert!(matches!(result, Err(ObjectError::ReadOnly { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn a_plain_server_says_what_it_cannot_do() {
    let (_server, store) = open(Abilities {
        lists: false,
        ranges: false,
    })
    .await;
    assert_eq!(store.read("a/2.jpg").await.unwrap(), PHOTO);
    let error = store.list(None, 10).await.unwrap_err();
    assert!(
        matches!(&error, ObjectError::NoListing { reason, .. } if reason.to_string().contains("405")),
        "{error:?}"
    );
    let text = store
        .read_range(&SampleRef::new("a/2.jpg"), 2..5)
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("HTTP range requests"), "{text}");
}

#[tokio::test]
async fn a_redirect_stays_on_its_server() {
    let abilities = Abilities {
        lists: false,
        ranges: true,
    };
    let (server, store) = open(abilities).await;
    let (inner, _inner_store) = open(abilities).await;
    let moved = |to: &Server| format!("moved/{}/photos/a/2.jpg", to.address);
    assert_eq!(store.read(&moved(&server)).await.unwrap(), PHOTO);
    let error = store.read(&moved(&inner)).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&format!("redirects to http://{}", inner.address)),
        "{error}"
    );
}

/// Memory of 8 MiB that counts the bytes read.
#[derive(Default)]
struct SmallRoom {
    lent: AtomicU64,
    read: AtomicU64,
}

impl ReadRoom for SmallRoom {
    fn reserve(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        Box::pin(std::future::ready(self.grow(bytes)))
    }

    fn try_reserve(&self, _: u64) -> Option<Guard> {
        None
    }

    fn grow(&self, bytes: u64) -> Result<Guard, OpError> {
        if self.lent.fetch_add(bytes, Ordering::SeqCst) >= 8 << 20 {
            return Err(OpError::too_large("no more memory"));
        }
        Ok(Box::new(()))
    }

    fn count_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_endless_answer_is_read_only_so_far() {
    let server = Server::start(async move |request: Request<Incoming>| {
        let mut answer = Response::new(endless());
        *answer.status_mut() = match (request.method().as_str(), request.uri().path()) {
            ("PROPFIND", "/photos") => StatusCode::MULTI_STATUS,
            _ => StatusCode::NOT_FOUND,
        };
        Ok(answer)
    })
    .await;
    let open = |folder: &str| Store::open_with(&format!("http://{}/{folder}/", server.address), []).unwrap();
    let error = open("photos").list(None, 10).await.unwrap_err();
    assert!(matches!(error, ObjectError::LongListing { .. }), "{error:?}");
    let room = Arc::new(SmallRoom::default());
    let within = open("photos").reading_into(Arc::clone(&room) as _);
    let error = within.list(None, 10).await.unwrap_err();
    assert!(matches!(error, ObjectError::OutOfBudget { .. }), "{error:?}");
    assert!(room.read.load(Ordering::SeqCst) <= 8 << 20);
    // The body of a refusal is endless as well.
    let error = open("videos").list(None, 10).await.unwrap_err();
    assert!(matches!(error, ObjectError::NoListing { .. }), "{error:?}");
}
