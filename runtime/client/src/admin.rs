use crate::transport::{Address, Call, CallBody, Transport, encode};
use crate::{ClientError, Deadlines, Token, Trust};
use bytes::Bytes;
use frostline_wire::REPR_DIGEST;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;

/// Deadline of an admin request. Requests are short, except when the state store is slow.
const DEADLINE: Duration = Duration::from_secs(120);

/// Upload deadline. The default model size limit is 1 GiB, and a slow state store writes 2 MB/s.
const UPLOAD_DEADLINE: Duration = Duration::from_secs(600);

/// A host from an admin's point of view. Calls are not retried.
///
/// All calls fail with [`ClientError`]: [`Unreachable`](ClientError::Unreachable) if the connection fails,
/// [`Silent`](ClientError::Silent) if the host stops sending or needs more than two minutes (ten for
/// uploads), [`Refused`](ClientError::Refused) with the message of the host, and the other variants if the
/// answer is incomplete or invalid.
pub struct AdminClient {
    transport: Transport,
}

impl AdminClient {
    /// Creates a client of the host with this Unix socket.
    ///
    /// # Errors
    /// Returns [`ClientError::Address`] if the client cannot be created.
    pub fn local(socket: &Path) -> Result<Self, ClientError> {
        let transport = Transport::local(socket, Deadlines::default())?;
        Ok(Self { transport })
    }

    /// Creates a client of the host with the admin API at `url`.
    ///
    /// # Errors
    /// Returns the errors of [`HostClient::with`](crate::HostClient::with).
    pub fn remote(url: &str, token: Token, trust: &Trust) -> Result<Self, ClientError> {
        let transport = Transport::new(Address::from_url(url), Some(token), trust, Deadlines::default())?;
        Ok(Self { transport })
    }

    /// Sends a `GET` request and returns the answer.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::GET, path);
        self.ask(Call { query, ..call }, DEADLINE).await
    }

    /// Sends a `POST` request with a JSON body and returns the answer.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::POST, path).json(encode(body)?);
        self.ask(call, DEADLINE).await
    }

    /// Sends a `PATCH` request with a JSON body and returns the answer.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::PATCH, path).json(encode(body)?);
        self.ask(call, DEADLINE).await
    }

    /// Sends a `DELETE` request.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        let removed = self.transport.upload(Call::new(Method::DELETE, path));
        self.within(DEADLINE, removed).await.map(drop)
    }

    /// Sends a `DELETE` request and returns the answer.
    pub async fn delete_for<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::DELETE, path);
        self.ask(Call { query, ..call }, DEADLINE).await
    }

    /// Sends a `POST` request without a body to a route that answers without one.
    pub async fn order(&self, path: &str) -> Result<(), ClientError> {
        let ordered = self.transport.upload(Call::new(Method::POST, path));
        self.within(DEADLINE, ordered).await.map(drop)
    }

    /// Uploads bytes. `digest` is the value of the `Repr-Digest` header.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        digest: &str,
        bytes: Bytes,
    ) -> Result<T, ClientError> {
        let call = Call {
            headers: &[(REPR_DIGEST, digest.to_owned())],
            body: Some(("application/octet-stream", CallBody::Whole(bytes))),
            ..Call::new(Method::PUT, path)
        };
        self.ask(call, UPLOAD_DEADLINE).await
    }

    async fn ask<T: DeserializeOwned>(&self, call: Call<'_>, deadline: Duration) -> Result<T, ClientError> {
        let path = call.path;
        let answered = async { self.transport.upload(call).await?.json(path).await };
        self.within(deadline, answered).await
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        answered: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        tokio::time::timeout(deadline, answered)
            .await
            .map_err(|_| self.transport.peer().silent("answering a request", deadline))?
    }
}
