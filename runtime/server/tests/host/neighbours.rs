//! Other tenants of a host.

use crate::support::{Client, TestHost, body};
use bytes::Bytes;
use frostline_wire::{GivenToken, NewTenant, QuotaChange, QuotaKey};
use http::{Method, Request};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::UnixStream;

impl TestHost {
    /// Another tenant, which may read the data and has this of a quota.
    pub(crate) async fn tenant(&self, name: &str, quota: &[(QuotaKey, u64)]) -> Client {
        let new = NewTenant {
            name: name.to_owned(),
            data: vec![self.root()],
            token_seconds: None,
        };
        let given = self.ask_admin(Method::POST, "/v1/tenants", &new).await;
        let given: GivenToken = serde_json::from_slice(&given).unwrap();
        let change: QuotaChange = quota.iter().map(|(key, value)| (*key, Some(*value))).collect();
        let path = format!("/v1/tenants/{name}/quota");
        self.ask_admin(Method::PATCH, &path, &change).await;
        Client::new(self.client.base.clone(), given.token, false)
    }

    async fn ask_admin(&self, method: Method, path: &str, request: &impl Serialize) -> Bytes {
        let socket = UnixStream::connect(self.folder.path().join("admin.sock"))
            .await
            .unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "admin")
            .body(Full::new(Bytes::from(serde_json::to_vec(request).unwrap())));
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        let answer = body(answer).await;
        connection.abort();
        answer
    }
}
