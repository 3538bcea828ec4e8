use super::namespace::Namespace;
use crate::dialogue::Dialogue;
use crate::photos::Photos as FolderOfPhotos;
use crate::report::folder;
use crate::run::text;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::process::Command;

/// Maximum number of photos. Allows an epoch with 16 batches of 16 images. Validation is small because it
/// only adds time.
const TRAIN: &str = "256";
const VALIDATION: &str = "20";

/// Contents of the bucket.
#[derive(Debug, Deserialize)]
pub(crate) struct Photos {
    port: u16,
    /// Data root.
    pub(crate) url: String,
    pub(crate) train: usize,
    pub(crate) validation: usize,
    /// Mean size of the training photos. The following fields are also about training photos.
    pub(crate) mean_bytes: f64,
    pub(crate) smallest: u64,
    pub(crate) largest: u64,
}

/// moto's S3 server with resized photos. Stopped on drop.
pub(crate) struct PhotoStore {
    server: Dialogue,
    photos: Photos,
}

impl PhotoStore {
    /// Starts the server in the namespace of two tiers.
    pub(super) fn start(namespace: &Namespace, photos: &FolderOfPhotos) -> Result<Self> {
        Self::launch(namespace.command("python3"), photos)
    }

    /// Starts the server in this process's network.
    pub(crate) fn start_here(photos: &FolderOfPhotos) -> Result<Self> {
        Self::launch(Command::new("python3"), photos)
    }

    fn launch(mut python: Command, photos: &FolderOfPhotos) -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/photo_store.py");
        python
            .args([script, "--train", TRAIN, "--validation", VALIDATION])
            .args(["--photos", text(photos.root())?])
            .args(["--cache", text(&folder()?.join("photos"))?]);
        let mut server = Dialogue::start(&mut python)?;
        let photos: Photos = server.answer().context("cannot start the S3 server")?;
        Ok(Self { server, photos })
    }

    pub(super) fn photos(&self) -> &Photos {
        &self.photos
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    /// URL for programs in the same network namespace.
    pub(crate) fn url_beside(&self) -> String {
        format!("http://127.0.0.1:{}", self.photos.port)
    }

    /// URL for programs at the other end of the link.
    pub(super) fn url_across(&self, host: Ipv4Addr) -> String {
        format!("http://{host}:{}", self.photos.port)
    }
}

/// Environment variables with credentials and endpoint for S3 clients.
pub(crate) fn access(url: &str) -> Vec<(&'static str, String)> {
    [
        ("AWS_ENDPOINT_URL", url),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}
