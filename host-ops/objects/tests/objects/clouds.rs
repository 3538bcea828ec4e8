//! Behavior of Google's and Azure's stores that differs from S3's.

use crate::server::{Answer, Server, whole};
use crate::version;
use bytes::Bytes;
use frostline_objects::{LARGEST_READ, ObjectError, Store};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, LAST_MODIFIED};
use hyper::{Method, Request, Response, StatusCode};
use std::io;

const DATE: &str = "Sat, 21 Nov 2026 10:00:00 GMT";

fn answer(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(whole(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(LAST_MODIFIED, DATE.parse().unwrap());
    headers.insert(CONTENT_TYPE, "image/jpeg".parse().unwrap());
    answer
}

fn refusal(status: StatusCode, code: &str) -> Answer {
    answer(
        status,
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>"),
    )
}

/// Serves a container `photos` with `set/a.jpg` in version `one`. Azure's listings contain etags without
/// quotes, headers with quotes.
async fn serve(request: Request<Incoming>, listing: String) -> io::Result<Answer> {
    let path = request.uri().path().replace("%2F", "/").replace("%2E", ".");
    Ok(match path.trim_start_matches("/account").trim_end_matches('/') {
        _ if request
            .headers()
            .get(AUTHORIZATION)
            .is_some_and(|given| given == "Bearer wrong") =>
        {
            refusal(StatusCode::FORBIDDEN, "AuthorizationFailure")
        }
        "/photos" => answer(StatusCode::OK, listing),
        "/photos/set/new.jpg" if request.method() == Method::PUT => {
            let signed = request.headers().contains_key(AUTHORIZATION);
            let status = if signed {
                StatusCode::FORBIDDEN
            } else {
                StatusCode::OK
            };
            let mut written = answer(status, String::new());
            let headers = written.headers_mut();
            headers.insert(ETAG, "\"new\"".parse().unwrap());
            headers.insert("x-goog-generation", "1".parse().unwrap());
            written
        }
        "/photos/set/a.jpg" => {
            let condition = request.headers().get(IF_MATCH);
            if condition.is_some_and(|etag| etag != "\"one\"") {
                refusal(StatusCode::PRECONDITION_FAILED, "ConditionNotMet")
            } else {
                let mut found = answer(StatusCode::OK, "photo".to_owned());
                found.headers_mut().insert(ETAG, "\"one\"".parse().unwrap());
                found
            }
        }
        path if path.starts_with("/photos/") => refusal(StatusCode::NOT_FOUND, "NoSuchKey"),
        _ => refusal(StatusCode::NOT_FOUND, "ContainerNotFound"),
    })
}

async fn start(listing: &str) -> (Server, String) {
    let listing = listing.to_owned();
    let server = Server::start(move |request| serve(request, listing.clone())).await;
    let url = format!("http://{}", server.address);
    (server, url)
}

fn open(root: &str, settings: &[(&str, &str)]) -> Store {
    let settings = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Store::open_with(root, settings).unwrap()
}

async fn behaves(store: &Store) {
    let page = store.list(None, 10).await.unwrap();
    assert_eq!(page.left_out.names, ["/b.jpg"]);
    let listed = page.objects;
    let [object] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    assert_eq!((object.sample.key.as_str(), object.size), ("a.jpg", 5));
    assert_eq!(object.sample.etag.as_deref(), Some("\"one\""));
    assert_eq!(
        store.read_sample(&object.sample, LARGEST_READ).await.unwrap(),
        "photo"
    );
    assert!(matches!(
        store.read_sample(&version("a.jpg", "two"), LARGEST_READ).await,
        Err(ObjectError::Changed { .. })
    ));
    assert!(matches!(
        store.read("b.jpg").await,
        Err(ObjectError::NotFound { .. })
    ));
}

async fn refuses(store: &Store, advice: &str) {
    for error in [
        store.list(None, 10).await.map(drop).unwrap_err(),
        store.read("a.jpg").await.map(drop).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(
            matches!(&error, ObjectError::Denied { .. }) && text.contains(advice) && !text.contains("AWS"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn googles_store_is_a_store() {
    let (_server, url) = start(
        "<ListBucketResult><Contents><Key>set//b.jpg</Key><Size>5</Size></Contents><Contents><Key>set/a.jpg</Key><Size>5</Size><ETag>\"one\"</ETag>\
         <LastModified>2026-11-21T10:00:00Z</LastModified></Contents></ListBucketResult>",
    )
    .await;
    let base = ("GOOGLE_BASE_URL", url.as_str());
    let unsigned = open("gs://photos/set", &[base, ("GOOGLE_SKIP_SIGNATURE", "1")]);
    behaves(&unsigned).await;
    // Unsigned requests do not look up the machine's account, not even for a write.
    unsigned.put_new("new.jpg", Bytes::new()).await.unwrap();
    let wrong = open("gs://photos/set", &[base, ("GOOGLE_BEARER_TOKEN", "wrong")]);
    refuses(&wrong, "GOOGLE_APPLICATION_CREDENTIALS").await;
}

#[tokio::test]
async fn azures_store_is_a_store() {
    let (_server, url) = start(&format!(
        "<EnumerationResults><Blobs><Blob><Name>set/a.jpg</Name><Properties><Last-Modified>{DATE}</Last-Modified>\
         <Content-Length>5</Content-Length><Content-Type>image/jpeg</Content-Type><Etag>one</Etag></Properties></Blob>\
         <Blob><Name>set//b.jpg</Name><Properties><Last-Modified>{DATE}</Last-Modified><Content-Length>5</Content-Length>\
         <Content-Type>image/jpeg</Content-Type></Properties></Blob></Blobs>\
         <NextMarker/></EnumerationResults>"
    ))
    .await;
    let url = format!("{url}/account");
    let settings = [
        ("AZURE_STORAGE_ENDPOINT", url.as_str()),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
    ];
    let open = |root: &str, credentials| open(root, &[settings[0], settings[1], credentials]);
    behaves(&open("az://photos/set", ("AZURE_SKIP_SIGNATURE", "true"))).await;
    refuses(
        &open("az://photos/set", ("AZURE_STORAGE_TOKEN", "wrong")),
        "AZURE_STORAGE_ACCOUNT_KEY",
    )
    .await;
    let nowhere = open("az://nowhere/set", ("AZURE_SKIP_SIGNATURE", "true"));
    let error = nowhere.read("a.jpg").await.unwrap_err();
    assert!(matches!(&error, ObjectError::NoSuchRoot { .. }), "{error:?}");
}
