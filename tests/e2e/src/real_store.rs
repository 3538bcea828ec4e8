use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// Environment variable with the folder of connection files (`<name>.json`) that `cargo xtask stores` writes.
pub const STORES: &str = "FROSTLINE_STORES";

/// Tested operations in the order of the printed table. Tests record results with [`RealStore::record`].
pub const OPERATIONS: [&str; 12] = [
    "long listings",
    "read whole and by range",
    "odd keys",
    "replaced since listed",
    "created only once",
    "deleted",
    "wrong credentials",
    "no such bucket",
    "training job",
    "replaced during a job",
    "job with wrong credentials",
    "state of two hosts",
];

/// Object store started by `cargo xtask stores`.
#[derive(Debug)]
pub struct RealStore {
    name: String,
    connection: Value,
    folder: PathBuf,
}

impl RealStore {
    /// Connects to the server with this name.
    ///
    /// # Errors
    /// Returns an error if the server is not running.
    pub fn running(name: &str) -> io::Result<Self> {
        let folder = std::env::var_os(STORES).map(PathBuf::from).ok_or_else(|| {
            io::Error::other("FROSTLINE_STORES is not set; run this test with `cargo xtask stores`")
        })?;
        let connection = fs::read_to_string(folder.join(format!("{name}.json")))?;
        Ok(Self {
            name: name.to_owned(),
            connection: serde_json::from_str(&connection)?,
            folder,
        })
    }

    /// Returns a unique root in the bucket, such as `az://bucket/what-<number>`.
    pub fn root(&self, what: &str) -> String {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let number = since.unwrap_or_default().as_nanos();
        format!("{}/{what}-{number:x}", self.bucket())
    }

    /// Returns the bucket as a data root.
    pub fn bucket(&self) -> &str {
        self.connection
            .get("root")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns the endpoint and credentials as environment variables.
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.variables("settings")
    }

    /// Returns the settings with a wrong secret, or None if the server accepts any secret.
    pub fn wrong_settings(&self) -> Option<BTreeMap<String, String>> {
        let mut settings = self.settings();
        settings.extend(Some(self.variables("wrong")).filter(|wrong| !wrong.is_empty())?);
        Some(settings)
    }

    /// True if the server supports conditional creation.
    pub fn supports_conditional_creation(&self) -> bool {
        self.connection
            .get("creates")
            .and_then(Value::as_bool)
            .unwrap_or_default()
    }

    /// Records the result of one of [`OPERATIONS`].
    ///
    /// # Errors
    /// Returns an error if the operation is unknown or the file cannot be written.
    pub fn record(&self, operation: &str, result: &str) -> io::Result<()> {
        if !OPERATIONS.contains(&operation) {
            return Err(io::Error::other(format!("unknown operation '{operation}'")));
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
