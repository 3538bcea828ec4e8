//! A host with an admin and tenants.

use crate::harness::{Scratch, frostline};
use frostline_e2e::{Finished, HostProcess, finish};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct AdminHost {
    pub(crate) scratch: Scratch,
    pub(crate) host: HostProcess,
}

impl AdminHost {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::with_photos(4, 1);
        let host = scratch.host(&[]);
        Self { scratch, host }
    }

    pub(crate) fn admin(&self, arguments: &[&str]) -> Finished {
        let socket = self.scratch.path("state/admin.sock");
        finish(
            frostline()
                .args(["admin", "--json", "--socket"])
                .arg(socket)
                .args(arguments),
        )
        .unwrap()
    }

    pub(crate) fn answer(&self, arguments: &[&str]) -> Value {
        let run = self.admin(arguments);
        assert_eq!(run.code, Some(0), "{run:?}");
        serde_json::from_str(&run.stdout).expect(&run.stdout)
    }

    /// Runs an admin command and returns the printed JSON objects, one per line.
    pub(crate) fn answers(&self, arguments: &[&str]) -> Vec<Value> {
        let run = self.admin(arguments);
        assert_eq!(run.code, Some(0), "{run:?}");
        run.objects().expect(&run.stdout)
    }

    /// Adds a tenant with access to the photos and writes the token to a file.
    pub(crate) fn add(&self, name: &str) -> PathBuf {
        let photos = self.scratch.path("photos");
        let added = self.answer(&["tenant", "add", name, "--data", photos.to_str().unwrap()]);
        self.write_token(name, &added)
    }

    pub(crate) fn write_token(&self, name: &str, added: &Value) -> PathBuf {
        let file = self.scratch.path(name);
        fs::write(&file, added["token"].as_str().unwrap()).unwrap();
        file
    }

    /// Runs a command as a tenant.
    pub(crate) fn tenant(&self, token: &Path, arguments: &[&str]) -> Finished {
        let url = self.host.url();
        let flags = ["--host", &url, "--token-file", token.to_str().unwrap()];
        finish(frostline().args(arguments).args(flags)).unwrap()
    }

    /// Trains as a tenant with the split at the features.
    pub(crate) fn train(&self, token: &Path) -> Finished {
        let url = self.host.url();
        let token = token.to_str().unwrap();
        self.scratch
            .train(&["--host", &url, "--token-file", token, "--split", "features"])
    }

    pub(crate) fn guests(&self, token: &Path) -> Finished {
        self.tenant(token, &["guest", "list", "--json"])
    }
}
