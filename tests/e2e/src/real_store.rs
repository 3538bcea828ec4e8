use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// The variable for the folder of the connection files of `cargo xtask stores`: `<name>.json` for each server.
pub const STORES: &str = "FROSTLINE_STORES";

/// The tested operations, in the order of the table; a test records its result with [`RealStore::record`].
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

/// An object store that `cargo xtask stores` started.
#[derive(Debug)]
pub struct RealStore {
    name: String,
    connection: Value,
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
        let connection = fs::read_to_string(folder.join(format!("{name}.json")))?;
        Ok(Self {
            name: name.to_owned(),
            connection: serde_json::from_str(&connection)?,
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
        self.connection
            .get("root")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Its endpoint and credentials, as environment variables.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.variables("settings")
    }

    /// The settings with a wrong secret, if it checks secrets.
    pub fn wrong_settings(&self) -> Option<BTreeMap<String, String>> {
        let mut settings = self.settings();
        settings.extend(Some(self.variables("wrong")).filter(|wrong| !wrong.is_empty())?);
        Some(settings)
    }

    /// Whether it supports conditional creation.
    pub fn creates(&self) -> bool {
        self.connection
            .get("creates")
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    /// Records the result of one of [`OPERATIONS`].
    ///
    /// # Errors
    /// If the operation is unknown, or the file cannot be written.
    pub fn record(&self, operation: &str, result: &str) -> io::Result<()> {
        if !OPERATIONS.contains(&operation) {
            return Err(io::Error::other(format!("'{operation}' is not in the table")));
        }
        let folder = self.folder.join("tried").join(&self.name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(operation), result)
    }

    fn variables(&self, name: &str) -> BTreeMap<String, String> {
        let connection = self.connection.get(name).and_then(Value::as_object);
        let connection = connection.into_iter().flatten();
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        connection.filter_map(text).collect()
    }
}
