use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A `frostline serve` process on a free loopback port, killed on drop.
pub struct HostProcess {
    child: Child,
    listening: Listening,
    token_file: PathBuf,
}

impl HostProcess {
    /// Starts `binary serve` with access to `data` and state below `folder`, and waits until it listens.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started or exits before it listens. Details are on stderr.
    pub fn start(binary: &Path, folder: &Path, data: &str, arguments: &[&str]) -> io::Result<Self> {
        Self::start_as(Command::new(binary), folder, data, arguments)
    }

    /// Like [`start`](Self::start), with a command that executes the binary, such as one with environment
    /// variables or a wrapper that pins it to a core.
    ///
    /// # Errors
    /// Returns the same errors as [`start`](Self::start).
    pub fn start_as(mut command: Command, folder: &Path, data: &str, arguments: &[&str]) -> io::Result<Self> {
        let token_file = folder.join("token");
        let state = folder.join("state");
        let defaults = [
            ("--state", state.as_os_str()),
            ("--listen", OsStr::new("127.0.0.1:0")),
        ];
        command
            .args(["serve", "--json", "--data", data, "--token-file"])
            .arg(&token_file)
            .args(
                defaults
                    .into_iter()
                    .filter(|(flag, _)| !arguments.contains(flag))
                    .flat_map(|(flag, value)| [OsStr::new(flag), value]),
            )
            .args(arguments);
        Self::spawn(command, token_file)
    }

    /// Starts a complete `serve --json` command and waits until it listens.
    ///
    /// # Errors
    /// Returns the same errors as [`start`](Self::start).
    pub fn spawn(mut command: Command, token_file: PathBuf) -> io::Result<Self> {
        let mut child = command
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        match listening(&mut child) {
            Ok(listening) => Ok(Self {
                child,
                listening,
                token_file,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Returns the address for tenants.
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// Returns the URL for tenants, with `http` or `https`.
    pub fn url(&self) -> String {
        self.listening.url.clone()
    }

    /// Returns the URL of the remote admin listener, if enabled.
    pub fn admin_url(&self) -> Option<&str> {
        self.listening.admin_url.as_deref()
    }

    /// Returns the address of the separate port for metrics, if enabled.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.listening.metrics_address
    }

    /// Returns the path of the token file.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process to exit.
    ///
    /// # Errors
    /// Returns an error if waiting fails.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Returns the exit status, or `None` if the process is running.
    ///
    /// # Errors
    /// Returns an error if the status cannot be read.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Kills the process to simulate a crash.
    ///
    /// # Errors
    /// Returns an error if the process cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Contents of a host's `listening` event.
struct Listening {
    url: String,
    address: SocketAddr,
    admin_url: Option<String>,
    metrics_address: Option<SocketAddr>,
}

/// Reads `{"event":"listening","url":"http://127.0.0.1:PORT",...}`, which a host with `--json` prints first.
fn listening(child: &mut Child) -> io::Result<Listening> {
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("missing standard output of the host"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let field = |name: &str| {
        let (_, rest) = line.split_once(&format!("\"{name}\":\""))?;
        rest.split('"').next().map(str::to_owned)
    };
    let url = field("url");
    let address = url
        .as_deref()
        .and_then(|url| url.split_once("://")?.1.parse().ok());
    url.zip(address)
        .map(|(url, address)| Listening {
            url,
            address,
            admin_url: field("admin_url"),
            metrics_address: field("metrics_address").and_then(|address| address.parse().ok()),
        })
        .ok_or_else(|| io::Error::other(format!("the host exited before listening, with output {line:?}")))
}
