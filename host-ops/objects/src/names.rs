//! Bounds the answers of stores, and removes names that are not valid keys from their listings.
//!
//! `object_store` fails a listing because of a single invalid name (an empty segment, `.`, `..` or a control
//! character), and reads `a/` and `/a` as `a`. Such entries are therefore removed from the response before it
//! is parsed, and their names are returned to the caller.

use crate::ObjectError;
use crate::codes::storage_class;
use crate::dates::AnswerDates;
use crate::room::{Guard, Room};
use crate::root::{LARGEST_READ, LISTING, Root};
use crate::tls::ensure_provider;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::Method;
use http_body_util::{BodyExt, Limited};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::path::Path;
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;
use std::cell::RefCell;
use std::time::Instant;

/// Maximum bytes of the answers to a listing: a web server's 100,000 objects of 670 bytes each. Other
/// stores send pages of 1,000 objects, about 1 MB.
const LARGEST_LISTING: u64 = 64 << 20;

/// Memory per byte of an answer: the text, a copy without invalid names, and the objects before and after conversion.
const MEMORY_PER_BYTE: u64 = 4;

/// Step of a listing's reservation in bytes. The first one covers a page with usual names.
const STEP: u64 = 2 << 20;

/// Maximum size of errors, credentials and confirmations in bytes.
const LARGEST_ANSWER: u64 = 64 << 10;

tokio::task_local! {
    /// The listing that the current task awaits.
    static LISTED: RefCell<ListedAnswers>;

    /// Storage class of the first object in the responses to the listing that the current task awaits.
    static CLASS: RefCell<Option<String>>;
}

/// Runs `listing` and returns the storage class of the first object. `object_store` drops it.
pub(crate) async fn first_storage_class<T>(listing: impl Future<Output = T>) -> Option<String> {
    let collected = async {
        listing.await;
        CLASS.with(RefCell::take)
    };
    CLASS.scope(RefCell::default(), collected).await
}

/// Answers to the requests of a listing.
struct ListedAnswers {
    root: String,
    room: Room,
    /// Bytes received.
    bytes: u64,
    removed: RemovedNames,
    /// The reason to give up.
    refusal: Option<ObjectError>,
}

/// Names removed from a listing.
#[derive(Default)]
pub(crate) struct RemovedNames {
    pub(crate) names: Vec<String>,
    /// Memory of the listing.
    memory: Vec<Guard>,
}

impl ListedAnswers {
    /// Counts `bytes` more bytes and reserves memory.
    ///
    /// # Errors
    /// Returns an error if the listing is too long, or if no memory is available.
    fn receive(&mut self, bytes: u64) -> Result<(), ObjectError> {
        self.room.count_read(bytes);
        self.bytes += bytes;
        if self.bytes > LARGEST_LISTING {
            return Err(ObjectError::LongListing {
                root: self.root.clone(),
                limit: LARGEST_LISTING,
            });
        }
        while self.bytes * MEMORY_PER_BYTE > self.removed.memory.len() as u64 * STEP {
            let more = self.room.grow(LISTING, STEP)?;
            self.removed.memory.push(more.unwrap_or_else(|| Box::new(())));
        }
        Ok(())
    }
}

/// Runs `listing` in memory from `room`, and returns the result with the removed names.
///
/// # Errors
/// Returns the explained error of the store, [`ObjectError::LongListing`] if the store's answers are too long, and
/// [`ObjectError::OutOfBudget`] if no memory is available.
pub(crate) async fn with_removed_names<T>(
    root: &Root,
    room: &Room,
    listing: impl Future<Output = object_store::Result<T>>,
) -> Result<(T, RemovedNames), ObjectError> {
    let first = room.enter(LISTING, STEP).await?;
    let answers = ListedAnswers {
        root: root.shown.clone(),
        room: room.clone(),
        bytes: 0,
        removed: RemovedNames {
            names: Vec::new(),
            memory: vec![first.unwrap_or_else(|| Box::new(()))],
        },
        refusal: None,
    };
    let collected = async {
        let result = listing.await;
        let (removed, refusal) = LISTED.with(|answers| {
            let mut answers = answers.borrow_mut();
            (std::mem::take(&mut answers.removed), answers.refusal.take())
        });
        match (result, refusal) {
            (Ok(result), _) => Ok((result, removed)),
            (Err(_), Some(refusal)) => Err(refusal),
            (Err(error), None) => Err(root.explain(&error, LISTING)),
        }
    };
    LISTED.scope(RefCell::new(answers), collected).await
}

/// HTTP connector of `object_store` that bounds answers, records their dates, and reduces listings to names that
/// [`Path`] can represent.
#[derive(Debug, Default)]
pub(crate) struct Connector {
    pub(crate) dates: AnswerDates,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        ensure_provider();
        let client = ReqwestConnector::default().connect(options)?;
        let dates = self.dates.clone();
        Ok(HttpClient::new(Filter { client, dates }))
    }
}

/// HTTP service that bounds the bytes of answers, and removes entries that [`Path`] cannot represent from listings.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) client: HttpClient,
    pub(crate) dates: AnswerDates,
}

#[async_trait]
impl HttpService for Filter {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let headers = request.headers_mut();
        // An empty token marks a write to Google's store that must not be signed.
        if headers
            .get("authorization")
            .is_some_and(|given| given == "Bearer ")
        {
            headers.remove("authorization");
        }
        let is_get = request.method() == Method::GET;
        let sent = Instant::now();
        let (parts, body) = self.client.execute(request).await?.into_parts();
        self.dates.record(&parts.headers, sent);
        let is_listing = LISTED.try_with(|_| ()).is_ok();
        let classes = CLASS.try_with(|_| ()).is_ok();
        let body = match parts.status.is_success() {
            true if is_listing => {
                let (kept, mut names) = remove_invalid_entries(received(body).await?);
                LISTED.with(|answers| answers.borrow_mut().removed.names.append(&mut names));
                kept.into()
            }
            true if classes => {
                let body = bounded(body, LARGEST_ANSWER).bytes().await?;
                let found = storage_class(&String::from_utf8_lossy(&body));
                CLASS.with(|class| class.replace(found));
                body.into()
            }
            // `fetch` enforces the exact size.
            true if is_get => bounded(body, LARGEST_READ),
            _ => bounded(body, LARGEST_ANSWER),
        };
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// Returns a body that fails after `limit` bytes.
fn bounded(body: HttpResponseBody, limit: u64) -> HttpResponseBody {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let body = Limited::new(body, most).map_err(move |error| match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(_) => HttpError::new(HttpErrorKind::Decode, AnswerTooLong { limit }),
    });
    HttpResponseBody::new(body)
}

/// An answer exceeds [`LARGEST_ANSWER`] or [`LARGEST_READ`].
#[derive(Debug, thiserror::Error)]
#[error("response of the store exceeds {limit} bytes; check the address of the store")]
struct AnswerTooLong {
    limit: u64,
}

/// Receives an answer to the listing that the current task awaits.
async fn received(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut pieces = body.bytes_stream();
    let mut bytes = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        let refused = LISTED.with(|answers| {
            let mut answers = answers.borrow_mut();
            let received = answers.receive(piece.len() as u64);
            answers.refusal = received.clone().err();
            received
        });
        refused.map_err(|error| HttpError::new(HttpErrorKind::Decode, error))?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Removes entries with invalid names from a listing of S3, Google, Azure or WebDAV, and returns the new body
/// and the names. Folder markers are removed without returning their names. Other bodies are returned
/// unchanged.
fn remove_invalid_entries(body: Bytes) -> (Bytes, Vec<String>) {
    let mut reader = Reader::from_reader(body.as_ref());
    let mut kept = BytesMut::new();
    let mut copied = 0;
    let mut names = Vec::new();
    let mut entry: Option<(usize, Name)> = None;
    loop {
        let before = position(&reader);
        match reader.read_event() {
            Ok(Event::Start(tag)) => match (tag.local_name().as_ref(), &mut entry) {
                (b"Contents" | b"Blob" | b"response", _) => entry = Some((before, Name::Key)),
                (b"Key" | b"Name" | b"href", Some((_, name @ Name::Key))) => {
                    let is_address = tag.local_name().as_ref() == b"href";
                    match reader.read_text(tag.name()) {
                        Ok(raw) => *name = Name::classify(&String::from_utf8_lossy(&raw), is_address),
                        Err(_) => return (body, Vec::new()),
                    }
                }
                _ => {}
            },
            Ok(Event::End(tag))
                if matches!(tag.local_name().as_ref(), b"Contents" | b"Blob" | b"response") =>
            {
                if let Some((start, name @ (Name::Marker | Name::Odd(_)))) = entry.take() {
                    kept.extend_from_slice(body.get(copied..start).unwrap_or_default());
                    copied = position(&reader);
                    names.extend(name.odd());
                }
            }
            Ok(Event::Eof) => break,
            Ok(_) => {}
            // `object_store` reports the problem.
            Err(_) => return (body, Vec::new()),
        }
    }
    if copied == 0 {
        return (body, names);
    }
    kept.extend_from_slice(body.get(copied..).unwrap_or_default());
    (kept.freeze(), names)
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

/// Classification of an entry's name.
enum Name {
    Key,
    /// Folder marker with a trailing slash, written by consoles and Hadoop.
    Marker,
    Odd(String),
}

impl Name {
    /// Classifies a name as written in the document. If `is_address` is set, the name is the path of the
    /// address.
    fn classify(raw: &str, is_address: bool) -> Self {
        let Ok(name) = unescape(raw) else {
            return Self::Odd(raw.to_owned());
        };
        let name = if is_address {
            path(&name)
        } else {
            Some(name.into_owned())
        };
        let Some(name) = name else {
            return Self::Odd(raw.to_owned());
        };
        let plain = name.strip_suffix('/').unwrap_or(&name);
        match Path::parse(plain) {
            Ok(path) if path.as_ref() != plain => Self::Odd(name),
            // `object_store` recognizes WebDAV folders and requires at least one entry.
            Ok(_) if plain.len() < name.len() && !is_address => Self::Marker,
            Ok(_) => Self::Key,
            Err(_) => Self::Odd(name),
        }
    }

    fn odd(self) -> Option<String> {
        match self {
            Self::Odd(name) => Some(name),
            Self::Key | Self::Marker => None,
        }
    }
}

/// Returns the decoded path of an address without its leading slash, or `None` if the path is not UTF-8.
fn path(address: &str) -> Option<String> {
    let path = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address.strip_prefix('/').unwrap_or(address),
    };
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s3(names: &[&str]) -> Bytes {
        let entries: String = names
            .iter()
            .map(|name| format!("<Contents><Key>{name}</Key><Size>1</Size></Contents>\n"))
            .collect();
        format!("<?xml version=\"1.0\"?><ListBucketResult><Name>photos</Name>{entries}</ListBucketResult>")
            .into()
    }

    #[test]
    fn entries_with_invalid_names_are_removed_and_returned() {
        let odd = [
            "a//b.jpg",
            "../c.jpg",
            "/d.jpg",
            "e/./f.jpg",
            "g&#1;.jpg",
            "h&#x0;.jpg",
        ];
        let plain = [
            "a/b.jpg",
            "a%2Fb.jpg",
            "x\\y.jpg",
            "R&amp;B.jpg",
            "<![CDATA[c]]>.jpg",
        ];
        let (body, names) = remove_invalid_entries(s3(&[odd.as_slice(), &["folder/"], &plain].concat()));
        assert_eq!(names.len(), odd.len(), "{names:?}");
        assert!(names.contains(&"g\u{1}.jpg".to_owned()) && !names.contains(&"folder/".to_owned()));
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(text.matches("<Contents>").count(), plain.len(), "{text}");
        assert!(plain.iter().all(|name| text.contains(name)), "{text}");
    }

    #[test]
    fn other_bodies_are_unchanged() {
        for body in ["", "{\"token\": \"<Key>\"}", "<Contents><Key>a//b", "\u{0}<<>"] {
            let body = Bytes::from(body);
            assert_eq!(remove_invalid_entries(body.clone()), (body, Vec::new()));
        }
        let fine = s3(&["a", "b/c"]);
        assert_eq!(remove_invalid_entries(fine.clone()), (fine, Vec::new()));
    }

    #[test]
    fn addresses_are_judged_by_what_they_stand_for() {
        for (address, fine) in [
            ("/photos/", true),
            ("/photos/a%20b.jpg", true),
            ("https://host:8080/photos/a.jpg", true),
            ("/photos/a%0Ab.jpg", false),
            ("/photos//a.jpg", false),
            ("/photos/%ff.jpg", false),
        ] {
            assert_eq!(
                matches!(Name::classify(address, true), Name::Key),
                fine,
                "{address}"
            );
        }
    }
}
