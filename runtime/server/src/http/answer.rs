//! Answers and their memory. Handlers return `Result<Answer, Refusal>`, and no other file creates a body.

#![expect(clippy::disallowed_types, reason = "builds reserved bodies for all handlers")]

use super::answer_body::AnswerBody;
use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::scheduling::{TenantMemory, with_reservation};
use crate::service::Service;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;
use frostline_batching::{Kind, Reserved};
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Body of a request.
pub(super) type RequestStream = Body;

/// Memory in bytes for the headers and the stream of an answer, in addition to the body.
const OVERHEAD: u64 = 1 << 10;

/// Initial reservation for an object, which grows or shrinks to the actual size.
pub(super) const OBJECT: u64 = 4 << 10;

/// Reservation for a list. A page is sent before the next one is written, and this size keeps a link of
/// 1 Gbit/s busy for a quarter of a millisecond.
pub(super) const PAGE: u64 = 32 << 10;

/// Maximum time that an answer waits for memory, the same as for a request body.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Retry delay if the memory of an answer cannot grow.
const MEMORY_RETRY: Duration = Duration::from_secs(2);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Answer to a request. The body is reserved until it has been sent.
pub(super) struct Answer(Response);

impl Answer {
    /// Creates an answer without a body.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self(status.into_response())
    }

    /// Creates an answer with a constant text, which uses no memory.
    pub(super) fn constant(text: &'static str) -> Self {
        Self::new(Body::from(text), TEXT)
    }

    /// Creates an answer with a text in `memory`.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if the reservation cannot grow to the size of the text.
    pub(super) fn text(text: String, memory: Reserved) -> Result<Self, Refusal> {
        Self::reserved(text.into_bytes(), memory, TEXT)
    }

    /// Creates an answer from bytes that several answers share, and that carry their reservation.
    pub(super) fn shared(bytes: Bytes, content: HeaderValue) -> Self {
        Self::new(Body::from(bytes), content)
    }

    /// Creates a JSON answer in `memory`, which is enlarged before the value is written.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if the reservation cannot grow to the size of the JSON text.
    pub(super) fn json(value: &impl Serialize, mut memory: Reserved) -> Result<Self, Refusal> {
        let length = json_bytes(value)?;
        grow(&mut memory, length as u64 + OVERHEAD)?;
        let mut json = Vec::with_capacity(length);
        serde_json::to_writer(&mut json, value).map_err(Refusal::host)?;
        Self::reserved(json, memory, JSON)
    }

    /// Creates a JSON array of `items`, which is written page by page. The next page is written into the
    /// memory of the previous one after that was sent. `memory` has [`PAGE`] bytes in addition to those of
    /// the items.
    pub(super) fn list<T: Serialize>(
        items: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
        memory: Reserved,
    ) -> Self {
        // The reservation returns through this channel when a page was sent.
        let (sender, mut receiver) = mpsc::channel(1);
        let mut pages = Pages {
            items: Some(items.into_iter()),
            separator: b'[',
            held: memory.bytes().saturating_sub(PAGE),
        };
        let _ = sender.try_send(memory);
        let pages = stream::poll_fn(move |context| {
            receiver.poll_recv(context).map(|memory| {
                let page = pages.write(memory?, &sender).transpose()?;
                Some(page.map(Bytes::from_owner))
            })
        });
        Self::new(Body::from_stream(pages), JSON)
    }

    /// Creates the answer of an extraction. Each row carries the reservation of its grant.
    pub(super) fn rows(body: AnswerBody, content: HeaderValue) -> Self {
        Self::new(Body::new(body), content)
    }

    /// Creates an answer that repeats constant bytes, which use no memory.
    pub(super) fn repeated(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        let pieces = pieces.map(Ok::<_, Infallible>);
        Self::new(Body::from_stream(stream::iter(pieces)), BYTES)
    }

    fn reserved(bytes: Vec<u8>, mut memory: Reserved, content: HeaderValue) -> Result<Self, Refusal> {
        resize(&mut memory, bytes.len() as u64 + OVERHEAD)?;
        let bytes = with_reservation(bytes.into(), &Arc::new(memory));
        Ok(Self::new(Body::from(bytes), content))
    }

    fn new(body: Body, content: HeaderValue) -> Self {
        Self(([(CONTENT_TYPE, content)], body).into_response())
    }

    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        *self.0.status_mut() = status;
        self
    }

    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers_mut().insert(name, value);
        self
    }

    /// Replaces the body of a response.
    pub(super) fn replace_body(self, response: &mut Response) {
        let (parts, body) = self.0.into_parts();
        response.headers_mut().remove(CONTENT_LENGTH);
        response.headers_mut().extend(parts.headers);
        *response.body_mut() = body;
    }
}

fn grow(memory: &mut Reserved, bytes: u64) -> Result<(), Refusal> {
    resize(memory, bytes.max(memory.bytes()))
}

fn resize(memory: &mut Reserved, bytes: u64) -> Result<(), Refusal> {
    memory
        .resize(bytes)
        .map_err(|error| Refusal::busy(format!("{error}; retry later"), MEMORY_RETRY))
}

/// Returns the size of the JSON text without writing it.
fn json_bytes(value: &impl Serialize) -> Result<usize, Refusal> {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_err(Refusal::host)?;
    Ok(count.0)
}

/// Page of a list. Returns the reservation when it was sent.
struct Page {
    json: Vec<u8>,
    memory: Option<Reserved>,
    sender: mpsc::Sender<Reserved>,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.json = Vec::new();
        if let Some(memory) = self.memory.take() {
            // Fails if the client has disconnected, and the reservation is released.
            let _ = self.sender.try_send(memory);
        }
    }
}

/// Items of a list that were not written yet.
struct Pages<I> {
    /// `None` after the end of the list was written.
    items: Option<I>,
    /// Text before the next item.
    separator: u8,
    /// Reserved bytes of the items themselves.
    held: u64,
}

impl<I: Iterator<Item: Serialize>> Pages<I> {
    /// Writes the next page, which exceeds [`PAGE`] only for an item of more than half of it. Returns `None`
    /// after the end.
    fn write(
        &mut self,
        mut memory: Reserved,
        sender: &mpsc::Sender<Reserved>,
    ) -> Result<Option<Page>, Refusal> {
        let Some(items) = &mut self.items else {
            return Ok(None);
        };
        let mut json = Vec::with_capacity(PAGE as usize);
        while (json.len() as u64) < PAGE / 2 {
            let Some(item) = items.next() else {
                json.extend((self.separator == b'[').then_some(b'['));
                json.push(b']');
                self.items = None;
                break;
            };
            let length = json.len() + 1 + json_bytes(&item)?;
            grow(&mut memory, self.held + length as u64 + OVERHEAD)?;
            json.push(self.separator);
            serde_json::to_writer(&mut json, &item).map_err(Refusal::host)?;
            self.separator = b',';
        }
        Ok(Some(Page {
            json,
            memory: Some(memory),
            sender: sender.clone(),
        }))
    }
}

/// Waits for `bytes` bytes of memory for an answer to a tenant, or to an admin if the name is empty.
///
/// # Errors
/// Returns [`Refusal::Busy`] if they do not become available within 10 s, or [`Refusal::Memory`] if they can
/// never be available. The handler may not hold other memory of requests.
pub(super) async fn answer_memory(service: &Service, tenant: &str, bytes: u64) -> Result<Reserved, Refusal> {
    TenantMemory::new(&service.scheduling.memory, tenant, Kind::Request)
        .reserve(bytes, MEMORY_TIMEOUT)
        .await
}

impl Caller {
    /// Waits for `bytes` bytes of memory for an answer.
    ///
    /// # Errors
    /// Returns the same errors as [`answer_memory`].
    pub(super) async fn answer_memory(&self, bytes: u64) -> Result<Reserved, Refusal> {
        answer_memory(self.service(), &self.tenant().name, bytes).await
    }
}

/// Handler of a route: an async function with extractors as arguments and the result
/// `Result<Answer, Refusal>`.
pub(super) trait Handler<Arguments>: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn answer(self, request: Request, service: Arc<Service>) -> BoxFuture<'static, Result<Answer, Refusal>>;
}

macro_rules! handler {
    ($($part:ident)*) => {
        #[allow(non_snake_case, reason = "arguments are named like their types")]
        impl<Function, Future, Via, $($part,)* Last> Handler<(Via, $($part,)* Last)> for Function
        where
            Function: FnOnce($($part,)* Last) -> Future + Clone + Send + Sync + 'static,
            Future: std::future::Future<Output = Result<Answer, Refusal>> + Send,
            $($part: FromRequestParts<Arc<Service>> + Send, Refusal: From<$part::Rejection>,)*
            Last: FromRequest<Arc<Service>, Via> + Send,
            Refusal: From<Last::Rejection>,
        {
            fn answer(
                self,
                request: Request,
                service: Arc<Service>,
            ) -> BoxFuture<'static, Result<Answer, Refusal>> {
                async move {
                    #[allow(unused_mut, reason = "unused without further arguments")]
                    let (mut parts, body) = request.into_parts();
                    $(let $part = $part::from_request_parts(&mut parts, &service).await?;)*
                    let last = Last::from_request(Request::from_parts(parts, body), &service).await?;
                    self($($part,)* last).await
                }
                .boxed()
            }
        }
    };
}

handler!();
handler!(First);
handler!(First Second);
handler!(First Second Third);

/// Creates the endpoint of a route.
pub(super) fn answered_by<H: Handler<Arguments>, Arguments: 'static>(
    method: MethodFilter,
    handler: H,
) -> MethodRouter<Arc<Service>> {
    on(method, async move |State(service), request| {
        let answer = handler.answer(request, service).await;
        answer.map(|Answer(response)| response)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use frostline_batching::{Budget, Ledger, Memory};
    use futures::StreamExt;

    fn memory(bytes: u64) -> Memory {
        Memory::new(Budget {
            bytes,
            ..Budget::default()
        })
    }

    fn held(memory: &Memory) -> u64 {
        memory.read(Ledger::held_in_all)
    }

    #[tokio::test]
    async fn an_object_is_reserved_until_it_was_sent() {
        let memory = memory(8 << 10);
        let reserved = memory.try_reserve("a", Kind::Request, OBJECT).unwrap();
        let answer = Answer::json(&"word", reserved).unwrap();
        assert_eq!(held(&memory), 6 + OVERHEAD);
        let body = to_bytes(answer.0.into_body(), 100).await.unwrap();
        assert_eq!((&body[..], held(&memory)), (b"\"word\"".as_slice(), 6 + OVERHEAD));
        drop(body);
        assert_eq!(held(&memory), 0);
    }

    #[test]
    fn an_object_that_does_not_fit_is_refused_before_it_is_written() {
        let memory = memory(8 << 10);
        let reserved = memory.try_reserve("a", Kind::Request, OBJECT).unwrap();
        let refused = Answer::json(&"x".repeat(8 << 10), reserved);
        assert!(matches!(refused.err(), Some(Refusal::Busy { .. })));
        assert_eq!(held(&memory), 0);
    }

    #[tokio::test]
    async fn a_list_of_any_length_needs_the_memory_of_a_page() {
        let memory = memory(PAGE);
        let reserved = memory.try_reserve("a", Kind::Request, PAGE).unwrap();
        let words = (0..100_000_u32).map(|number| format!("word {number}"));
        let answer = Answer::list(words.clone(), reserved);
        let mut pages = answer.0.into_body().into_data_stream();
        let mut json = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.unwrap();
            assert!(page.len() as u64 <= PAGE && held(&memory) == PAGE);
            let mut next = std::pin::pin!(pages.next());
            assert!(futures::poll!(&mut next).is_pending(), "the page was not sent");
            json.extend_from_slice(&page);
        }
        drop(pages);
        assert_eq!(held(&memory), 0);
        let read: Vec<String> = serde_json::from_slice(&json).unwrap();
        assert!(read.into_iter().eq(words));
        let reserved = memory.try_reserve("a", Kind::Request, PAGE).unwrap();
        let mut nothing = Answer::list(Vec::<u32>::new(), reserved)
            .0
            .into_body()
            .into_data_stream();
        assert_eq!(&nothing.next().await.unwrap().unwrap()[..], b"[]");
        assert!(nothing.next().await.is_none());
    }
}
