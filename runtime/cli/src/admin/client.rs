//! HTTP over a host's Unix socket, or from afar over TLS.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use frostline_client::{Token, Trust};
use frostline_wire::{ErrorBody, REPR_DIGEST};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// An admin's request is short work; one that takes longer waits for the state's store.
const DEADLINE: Duration = Duration::from_secs(120);

/// How long a connection from afar may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Time for the largest model a host takes by default, 1 GiB, where the state's store takes 2 MB/s.
const UPLOAD_DEADLINE: Duration = Duration::from_secs(600);

/// The longest answer: a thousand tenants with all their tokens.
const MOST: usize = 16 << 20;

pub(super) struct AdminClient(Reached);

/// How the host is reached.
enum Reached {
    /// Over its socket.
    Local { socket: PathBuf },
    /// Over TLS, with a token.
    Remote { url: String, token: Token, trust: Trust },
}

impl AdminClient {
    pub(super) fn local(socket: PathBuf) -> Self {
        Self(Reached::Local { socket })
    }

    pub(super) fn remote(url: &str, token_file: &Path, ca: Option<&Path>) -> Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        if !url.starts_with("https://") {
            bail!("an admin's token is sent over TLS alone; write the host like https://store:7434");
        }
        Ok(Self(Reached::Remote {
            url,
            token: Token::read(token_file)?,
            trust: ca.map_or(Ok(Trust::System), Trust::read)?,
        }))
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.json(Method::GET, path, None::<&()>).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.json(Method::POST, path, Some(body)).await
    }

    pub(super) async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.json(Method::PATCH, path, Some(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        let request = Request::builder().method(Method::DELETE);
        self.send(path, request, Bytes::new(), DEADLINE).await.map(drop)
    }

    /// Sends an upload that hashes to `digest`.
    pub(super) async fn put<T: DeserializeOwned>(&self, path: &str, digest: &str, body: Bytes) -> Result<T> {
        let request = Request::builder().method(Method::PUT).header(REPR_DIGEST, digest);
        read(&self.send(path, request, body, UPLOAD_DEADLINE).await?)
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder().method(method);
        read(&self.send(path, request, body.into(), DEADLINE).await?)
    }

    async fn send(&self, path: &str, request: Builder, body: Bytes, deadline: Duration) -> Result<Bytes> {
        let exchange = self.exchange(path, request, body);
        let (status, answer) = tokio::time::timeout(deadline, exchange)
            .await
            .with_context(|| format!("the host did not answer for {} s", deadline.as_secs()))??;
        if status.is_success() {
            return Ok(answer);
        }
        match serde_json::from_slice::<ErrorBody>(&answer) {
            Ok(error) => Err(error.into()),
            Err(_) => bail!("the host answered {status}"),
        }
    }

    async fn exchange(&self, path: &str, request: Builder, body: Bytes) -> Result<(StatusCode, Bytes)> {
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let answer = match &self.0 {
            Reached::Local { socket } => {
                let request = request.uri(path).header(header::HOST, "admin");
                over_socket(socket, request.body(Full::new(body))?).await?
            }
            Reached::Remote { url, token, trust } => {
                let request = request
                    .uri(format!("{url}{path}"))
                    .header(header::AUTHORIZATION, token.header());
                over_tls(url, trust, request.body(Full::new(body))?).await?
            }
        };
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the host's answer broke off: {error}"))?;
        Ok((status, body.to_bytes()))
    }
}

async fn over_socket(socket: &Path, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await.with_context(|| {
        format!(
            "no host answers at {}; name its socket by --socket, which is admin.sock in the host's local directory unless it is configured",
            socket.display()
        )
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

async fn over_tls(url: &str, trust: &Trust, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build(trust.connector(true, CONNECT)?);
    let answer = client.request(request).await;
    answer.with_context(|| {
        format!("no host answers admins at {url}; does it serve with --admin-listen, and does --ca name its authority?")
    })
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T> {
    serde_json::from_slice(answer).context("the host's answer cannot be read; is it of another version?")
}
