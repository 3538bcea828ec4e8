use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A `frostline serve` process on a loopback port of its own choice; it ends when this is dropped.
pub struct HostProcess {
    child: Child,
    address: SocketAddr,
    token_file: PathBuf,
}

impl HostProcess {
    /// Starts `binary serve` with its state below `folder`, granting `data`, and waits until it listens.
    ///
    /// # Errors
    /// When the process cannot be started or ends before it listens; its own words are on stderr.
    pub fn start(binary: &Path, folder: &Path, data: &str, arguments: &[&str]) -> io::Result<Self> {
        Self::start_as(Command::new(binary), folder, data, arguments)
    }

    /// Like [`start`](Self::start), by a command that ends as the binary: with an environment, or behind a program that
    /// pins it to a core and then becomes it.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_as(mut command: Command, folder: &Path, data: &str, arguments: &[&str]) -> io::Result<Self> {
        let token_file = folder.join("token");
        let state = folder.join("state");
        let defaults = [
            ("--state", state.as_os_str()),
            ("--listen", OsStr::new("127.0.0.1:0")),
        ];
        let mut child = command
            .args(["serve", "--json", "--data", data, "--token-file"])
            .arg(&token_file)
            .args(
                defaults
                    .into_iter()
                    .filter(|(flag, _)| !arguments.contains(flag))
                    .flat_map(|(flag, value)| [OsStr::new(flag), value]),
            )
            .args(arguments)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        match listening(&mut child) {
            Ok(address) => Ok(Self {
                child,
                address,
                token_file,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The file with its token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Ends it at once, as a crash would.
    ///
    /// # Errors
    /// When the process cannot be reached.
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

/// Reads `{"event":"listening","url":"http://127.0.0.1:PORT",...}`, the first line a host prints with `--json`.
fn listening(child: &mut Child) -> io::Result<SocketAddr> {
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("the host has no standard output"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    line.split_once("http://")
        .and_then(|(_, rest)| rest.split('"').next())
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| io::Error::other(format!("the host ended before it listened; it printed: {line:?}")))
}
