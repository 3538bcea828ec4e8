//! HTTP over a host's Unix socket.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use frostline_wire::ErrorBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;

/// An admin's request is short work; one that takes longer waits for the state's store.
const DEADLINE: Duration = Duration::from_secs(120);

/// The longest answer: a thousand tenants with all their tokens.
const MOST: usize = 16 << 20;

pub(super) struct AdminClient {
    socket: PathBuf,
}

impl AdminClient {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket }
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
        self.send(Method::DELETE, path, Bytes::new()).await.map(drop)
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let answer = self.send(method, path, body.into()).await?;
        serde_json::from_slice(&answer).context("the host's answer cannot be read; is it of another version?")
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let exchange = self.exchange(method, path, body);
        let (status, answer) = tokio::time::timeout(DEADLINE, exchange)
            .await
            .with_context(|| format!("the host did not answer for {} s", DEADLINE.as_secs()))??;
        if status.is_success() {
            return Ok(answer);
        }
        match serde_json::from_slice::<ErrorBody>(&answer) {
            Ok(error) => bail!("{error}"),
            Err(_) => bail!("the host answered {status}"),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes)> {
        let stream = UnixStream::connect(&self.socket).await.with_context(|| {
            format!(
                "no host answers at {}; name its socket by --socket, which is admin.sock in the host's local directory unless it is configured",
                self.socket.display()
            )
        })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "admin")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the host's answer broke off: {error}"))?;
        Ok((status, body.to_bytes()))
    }
}
