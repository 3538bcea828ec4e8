//! Hosts with data for the tests, and requests to them.

use crate::client::{Client, STUCK, body};
use crate::fixtures::{photo, sample};
use bytes::Bytes;
use frostline_server::{Host, HostConfig, HostSettings, RunningHost};
use frostline_wire::{Encoding, ExtractionRequest, Load, Split, Terms, UploadRef};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::UnixStream;

/// Runs this test in a separate process, because it examines the complete log of the process. Returns false
/// in that process.
pub(crate) fn rerun_in_own_process(test: &str) -> bool {
    const ALONE: &str = "FROSTLINE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let ran = command.args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    true
}

pub(crate) struct TestHost {
    pub(crate) host: Option<RunningHost>,
    pub(crate) folder: TempDir,
    pub(crate) client: Client,
}

impl TestHost {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut HostSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        Self::start_in(folder, change).await
    }

    /// Starts a host with existing state and data.
    pub(crate) async fn start_in(folder: TempDir, change: impl FnOnce(&mut HostSettings)) -> Self {
        Self::configured(folder, change, |_| ()).await
    }

    /// Starts a host with limits that are not part of the configuration file.
    pub(crate) async fn limited(
        change: impl FnOnce(&mut HostSettings),
        limit: impl FnOnce(&mut HostConfig),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        Self::configured(folder, change, limit).await
    }

    async fn configured(
        folder: TempDir,
        change: impl FnOnce(&mut HostSettings),
        limit: impl FnOnce(&mut HostConfig),
    ) -> Self {
        let mut settings = HostSettings {
            listen: "127.0.0.1:0".to_owned(),
            state: folder.path().join("state").to_str().unwrap().to_owned(),
            data: vec![folder.path().join("data").to_str().unwrap().to_owned()],
            admin_socket: Some(folder.path().join("admin.sock")),
            ..HostSettings::default()
        };
        settings.extractions.grant = 4;
        change(&mut settings);
        let mut config = settings.check().unwrap();
        limit(&mut config);
        let host = Host::start(config).await.unwrap();
        let token = std::fs::read_to_string(host.token_file())
            .unwrap()
            .trim()
            .to_owned();
        let client = Client::new(format!("http://{}", host.address()), token, false);
        Self {
            host: Some(host),
            folder,
            client,
        }
    }

    pub(crate) fn http2(&self) -> Client {
        Client::new(self.client.base.clone(), self.client.token.clone(), true)
    }

    /// Returns a client with another token.
    pub(crate) fn client_of(&self, token: &str) -> Client {
        Client::new(self.client.base.clone(), token.to_owned(), false)
    }

    /// Sends an admin request that must succeed.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: &impl Serialize) -> Value {
        let (status, bytes) = self.ask_admin(method, path, body).await;
        assert!(status.is_success(), "{path}: {status} {bytes:?}");
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Sends an admin request and returns the status and the body.
    pub(crate) async fn ask_admin(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> (StatusCode, Bytes) {
        self.ask_admin_with(method, path, serde_json::to_vec(body).unwrap())
            .await
    }

    /// Sends an admin request with this body and returns the status and the body.
    pub(crate) async fn ask_admin_with(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> (StatusCode, Bytes) {
        let socket = self.folder.path().join("admin.sock");
        let stream = UnixStream::connect(socket).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "admin")
            .body(Full::new(Bytes::from(body)));
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        let answered = (answer.status(), self::body(answer).await);
        connection.abort();
        answered
    }

    /// Adds a tenant with access to the data. Returns the token and the id of the token.
    pub(crate) async fn add_tenant(&self, name: &str) -> (String, String) {
        let new = serde_json::json!({"name": name, "data": [self.root()]});
        let given = self.admin(Method::POST, "/v1/tenants", &new).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&given["token"]), text(&given["tenant"]["tokens"][0]["id"]))
    }

    /// Returns the number of running extractions according to the admin API.
    pub(crate) async fn running(&self) -> u64 {
        let activity = self.admin(Method::GET, "/v1/activity", &Value::Null).await;
        activity["running"].as_u64().unwrap()
    }

    /// Waits until no extraction runs, according to the admin API.
    pub(crate) async fn wait_until_ended(&self) {
        let ended = async {
            while self.running().await > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(STUCK, ended)
            .await
            .expect("an extraction is still running");
    }

    /// Returns a request for more bytes than all socket buffers hold. The extraction stays open until the
    /// answer is read.
    pub(crate) fn large_request(&self) -> ExtractionRequest {
        self.write("large", &vec![7; 1 << 20]);
        let mut request = self.request("none", 0);
        request.samples = (0..64).map(|position| sample(position, "large")).collect();
        request
    }

    pub(crate) fn root(&self) -> String {
        self.folder.path().join("data").to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, key: &str, bytes: &[u8]) {
        let path = self.folder.path().join("data").join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Writes different photos named `0.png`, `1.png` and so on. Returns the files.
    pub(crate) fn photos(&self, count: u32) -> Vec<Bytes> {
        let photos: Vec<Bytes> = (0..count).map(photo).collect();
        photos
            .iter()
            .enumerate()
            .for_each(|(index, photo)| self.write(&format!("{index}.png"), photo));
        photos
    }

    pub(crate) async fn upload(&self) -> (UploadRef, UploadRef) {
        self.client.upload().await
    }

    pub(crate) async fn load(&self) -> Load {
        self.client.get("/v1/load").await.1
    }

    /// Waits until the tenant has no running extraction.
    pub(crate) async fn wait_until_idle(&self) {
        let idle = async {
            while self.load().await.running > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(STUCK, idle)
            .await
            .expect("an extraction is still running");
    }

    pub(crate) fn request(&self, split: &str, samples: u32) -> ExtractionRequest {
        ExtractionRequest {
            root: self.root(),
            split: Split::from(split),
            guest: None,
            model: None,
            parameters: String::new(),
            encoding: Encoding::F32,
            terms: Terms::default(),
            view: None,
            digests: false,
            samples: (0..samples)
                .map(|index| sample(index * 10, &format!("{index}.png")))
                .collect(),
        }
    }
}
