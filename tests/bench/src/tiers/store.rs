use super::namespace::Namespace;
use crate::dialogue::Dialogue;
use crate::photos::Photos as FolderOfPhotos;
use crate::report::folder;
use crate::run::text;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::process::Command;

/// At most: enough that 16 batches of 16 make an epoch. Few to validate with, for that only costs time here.
const TRAIN: &str = "256";
const VALIDATION: &str = "20";

/// What lies in the bucket.
#[derive(Debug, Deserialize)]
pub(crate) struct Photos {
    port: u16,
    /// The data root.
    pub(crate) url: String,
    pub(crate) train: usize,
    pub(crate) validation: usize,
    /// Of the training photos, as all that follows.
    pub(crate) mean_bytes: f64,
    pub(crate) smallest: u64,
    pub(crate) largest: u64,
}

/// moto's S3 server with resized photos; it ends when this is dropped.
pub(crate) struct PhotoStore {
    server: Dialogue,
    photos: Photos,
}

impl PhotoStore {
    /// In the namespace of two tiers.
    pub(super) fn start(namespace: &Namespace, photos: &FolderOfPhotos) -> Result<Self> {
        Self::launch(namespace.command("python3"), photos)
    }

    /// Beside this process.
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
        let photos: Photos = server.answer().context("the S3 server did not start")?;
        Ok(Self { server, photos })
    }

    pub(super) fn photos(&self) -> &Photos {
        &self.photos
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    /// Its address for programs beside it.
    pub(crate) fn url_beside(&self) -> String {
        format!("http://127.0.0.1:{}", self.photos.port)
    }

    /// Its address for programs at the other end of the link.
    pub(super) fn url_across(&self, host: Ipv4Addr) -> String {
        format!("http://{host}:{}", self.photos.port)
    }
}

/// Credentials and endpoint, as S3 clients read them.
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
