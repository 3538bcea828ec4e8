//! A host that serves only a long listing.

use anyhow::{Context, Result};
use bytes::Bytes;
use frostline_wire::{ObjectInfo, ObjectPage, SampleRef};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// Objects per page, as on real hosts.
const PAGE: usize = 1000;

/// Object names like those in ImageNet: `n00000042/n00000042_17.JPEG`.
#[derive(Clone, Copy)]
pub(super) struct Names {
    pub(super) classes: usize,
    /// Images per class.
    pub(super) images: usize,
}

impl Names {
    pub(super) fn count(self) -> usize {
        self.classes * self.images
    }

    fn object(self, number: usize) -> ObjectInfo {
        let (class, image) = (number / self.images, number % self.images);
        ObjectInfo {
            sample: SampleRef {
                key: format!("n{class:08}/n{class:08}_{image:05}.JPEG"),
                // As long as an ETag from S3.
                etag: Some(format!("\"{number:032x}\"")),
            },
            size: 80_000 + (number as u64 * 7919) % 60_000,
            label: None,
            changed: None,
        }
    }

    /// Answers to all requests for a listing.
    fn pages(self) -> Result<Vec<Bytes>> {
        let count = self.count();
        let page = |first: usize| {
            let end = count.min(first + PAGE);
            let objects: Vec<ObjectInfo> = (first..end).map(|number| self.object(number)).collect();
            let next = objects
                .last()
                .filter(|_| end < count)
                .map(|last| last.sample.key.clone());
            Ok(serde_json::to_vec(&ObjectPage {
                objects,
                next,
                ..ObjectPage::default()
            })?
            .into())
        };
        (0..count).step_by(PAGE).map(page).collect()
    }
}

/// Host on a loopback port. Stopped on drop.
pub(super) struct Listed {
    pub(super) url: String,
    _accepting: AbortOnDropHandle<()>,
}

/// Serves prebuilt pages to measure only the request times.
pub(super) async fn serve(names: Names) -> Result<Listed> {
    let pages = Arc::new((names, names.pages()?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Like real hosts, so that the end of an answer does not wait for the acknowledgement of earlier
            // packets.
            let _ = stream.set_nodelay(true);
            tokio::spawn(connection(stream, Arc::clone(&pages)));
        }
    });
    Ok(Listed {
        url,
        _accepting: AbortOnDropHandle::new(accepting),
    })
}

async fn connection(stream: TcpStream, pages: Arc<(Names, Vec<Bytes>)>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(answer(&request, &pages)) }
    });
    let _ = Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Serves pages, zeros for link measurements, and 404 for anything else.
fn answer(request: &Request<Incoming>, pages: &(Names, Vec<Bytes>)) -> Response<Full<Bytes>> {
    let value = |name: &str| {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let mut values = pairs.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        values.next().map(str::to_owned)
    };
    let body = match request.uri().path() {
        "/v1/objects" => page(pages, value("after")),
        "/v1/models" => Some(Bytes::from_static(b"[]")),
        "/v1/probe" => {
            let bytes = value("bytes").and_then(|bytes| bytes.parse().ok());
            Some(vec![0; bytes.unwrap_or(0)].into())
        }
        _ => None,
    };
    let mut response = Response::new(Full::new(body.clone().unwrap_or_else(refusal)));
    if body.is_none() {
        *response.status_mut() = http::StatusCode::NOT_FOUND;
    }
    response
}

fn refusal() -> Bytes {
    Bytes::from_static(br#"{"class":"not_found","message":"this host serves only a listing"}"#)
}

/// Returns the page after the key `n<class>%2Fn<class>_<image>.JPEG`, which must be the last key of another
/// page.
fn page((names, pages): &(Names, Vec<Bytes>), after: Option<String>) -> Option<Bytes> {
    let Some(after) = after else {
        return pages.first().cloned();
    };
    let class: usize = after.get(1..9)?.parse().ok()?;
    let image: usize = after.rsplit_once('_')?.1.strip_suffix(".JPEG")?.parse().ok()?;
    pages.get((class * names.images + image + 1) / PAGE).cloned()
}

/// Returns the seconds for requesting all pages one by one, without parsing more than the key of the next
/// page.
pub(super) async fn read(url: &str) -> Result<f64> {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Empty<Bytes>>();
    let started = Instant::now();
    let mut after = String::new();
    loop {
        let uri = format!("{url}/v1/objects?root=photos&layout=auto{after}");
        let answer = client.get(uri.parse()?).await?;
        let page = answer.into_body().collect().await?.to_bytes();
        // The last member of the answer, if present: ..],"next":"<key>"}
        let tail = page.len().saturating_sub(100);
        let tail =
            std::str::from_utf8(page.get(tail..).unwrap_or_default()).context("a page is not UTF-8")?;
        let Some((_, next)) = tail.split_once("\"next\":\"") else {
            return Ok(started.elapsed().as_secs_f64());
        };
        after = format!("&after={}", next.trim_end_matches("\"}").replace('/', "%2F"));
    }
}
