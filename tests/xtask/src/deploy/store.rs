//! Local S3 server that stores the state and data of hosts.

use crate::python;
use crate::workspace::root;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Server process (`store.py`), killed on drop.
pub(super) struct Store {
    child: Child,
    pub(super) url: String,
}

impl Store {
    pub(super) fn start(photos: &Path) -> Result<Self> {
        let mut child = Command::new("python3")
            .arg(root().join("tests/xtask/src/deploy/store.py"))
            .arg(photos)
            .env("PATH", python::ensure("tests/requirements.txt", "python")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("python3 has no output")?).read_line(&mut line)?;
        let store = Self {
            child,
            url: line.trim().to_owned(),
        };
        if !store.url.starts_with("http://") {
            bail!("cannot start the S3 server (moto)");
        }
        Ok(store)
    }

    /// Returns environment variables for hosts and clients of this server.
    pub(super) fn environment(&self) -> [(&'static str, &str); 5] {
        [
            ("AWS_ENDPOINT_URL", &self.url),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ]
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
