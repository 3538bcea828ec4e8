use crate::transport::{Address, Call, Content, Transport, encode};
use crate::{ClientError, Deadlines, Token, Trust};
use bytes::Bytes;
use frostline_wire::REPR_DIGEST;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;

/// An admin's request is short work; one that takes longer waits for the state's store.
const DEADLINE: Duration = Duration::from_secs(120);

/// Time for the largest model a host takes by default, 1 GiB, where the state's store takes 2 MB/s.
const UPLOAD_DEADLINE: Duration = Duration::from_secs(600);

/// A host, as its admins use it. Every call is made once.
///
/// Each fails with [`ClientError`]: [`Unreachable`](ClientError::Unreachable) where nobody answers, [`Refused`](ClientError::Refused)
/// with the host's own words.
pub struct AdminClient {
    transport: Transport,
}

impl AdminClient {
    /// A client of the host with this Unix socket.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn local(socket: &Path) -> Result<Self, ClientError> {
        let transport = Transport::local(socket, Deadlines::default())?;
        Ok(Self { transport })
    }

    /// A client of the host that serves admins at `url`.
    ///
    /// # Errors
    /// As [`HostClient::with`](crate::HostClient::with).
    pub fn remote(url: &str, token: Token, trust: &Trust) -> Result<Self, ClientError> {
        let transport = Transport::new(Address::from_url(url), Some(token), trust, Deadlines::default())?;
        Ok(Self { transport })
    }

    /// Asks for something.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::GET, path);
        self.ask(Call { query, ..call }, DEADLINE).await
    }

    /// Has something done or made.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::POST, path).json(encode(body)?);
        self.ask(call, DEADLINE).await
    }

    /// Changes something.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::PATCH, path).json(encode(body)?);
        self.ask(call, DEADLINE).await
    }

    /// Removes something.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        let removed = self.transport.upload(Call::new(Method::DELETE, path));
        self.within(DEADLINE, removed).await.map(drop)
    }

    /// Sends an upload that hashes to `digest`.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        digest: &str,
        bytes: Bytes,
    ) -> Result<T, ClientError> {
        let call = Call {
            headers: &[(REPR_DIGEST, digest.to_owned())],
            body: Some(("application/octet-stream", Content::Whole(bytes))),
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
