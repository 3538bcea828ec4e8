use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// Names the folder in which `cargo xtask stores` says what it started: `<name>.json` for each server.
pub const STORES: &str = "FROSTLINE_STORES";

/// What is tried on every server, in the order of the table; a test says what came of it with [`RealStore::tried`].
pub const OPERATIONS: [&str; 13] = [
    "listed by the thousand",
    "read whole and by range",
    "odd keys",
    "replaced since listed",
    "created only once",
    "deleted",
    "wrong credentials",
    "no such bucket",
    "the main job",
    "replaced in mid-job",
    "refused to the job",
    "state of two hosts",
    "features shared by a team",
];

/// An object store's server that `cargo xtask stores` started.
#[derive(Debug)]
pub struct RealStore {
    name: String,
    told: Value,
    folder: PathBuf,
}

impl RealStore {
    /// The server of that name.
    ///
    /// # Errors
    /// When it does not run.
    pub fn running(name: &str) -> io::Result<Self> {
        let folder = std::env::var_os(STORES)
            .map(PathBuf::from)
            .ok_or_else(|| io::Error::other("`cargo xtask stores` runs this test"))?;
        let told = fs::read_to_string(folder.join(format!("{name}.json")))?;
        Ok(Self {
            name: name.to_owned(),
            told: serde_json::from_str(&told)?,
            folder,
        })
    }

    /// A part of its bucket that nothing else uses: `az://bucket/what-<number>`.
    pub fn root(&self, what: &str) -> String {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let number = since.unwrap_or_default().as_nanos();
        format!("{}/{what}-{number:x}", self.bucket())
    }

    /// Its bucket, as a root.
    pub fn bucket(&self) -> &str {
        self.told.get("root").and_then(Value::as_str).unwrap_or_default()
    }

    /// What leads to it and opens it, as an environment has that.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.variables("settings")
    }

    /// The same with a wrong secret, where it looks at that.
    pub fn wrong_settings(&self) -> Option<BTreeMap<String, String>> {
        let mut settings = self.settings();
        settings.extend(Some(self.variables("wrong")).filter(|wrong| !wrong.is_empty())?);
        Some(settings)
    }

    /// Whether it knows how to create an object only where none is.
    pub fn creates(&self) -> bool {
        self.told
            .get("creates")
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    /// Notes what came of one of [`OPERATIONS`].
    ///
    /// # Errors
    /// When it is none of them, or cannot be noted.
    pub fn tried(&self, operation: &str, came: &str) -> io::Result<()> {
        if !OPERATIONS.contains(&operation) {
            return Err(io::Error::other(format!("'{operation}' is not in the table")));
        }
        let folder = self.folder.join("tried").join(&self.name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(operation), came)
    }

    fn variables(&self, name: &str) -> BTreeMap<String, String> {
        let told = self.told.get(name).and_then(Value::as_object);
        let told = told.into_iter().flatten();
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        told.filter_map(text).collect()
    }
}
