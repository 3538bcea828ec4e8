use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A `frostline serve` process on a free loopback port; it is killed on drop.
pub struct HostProcess {
    child: Child,
    listening: Listening,
    token_file: PathBuf,
}

impl HostProcess {
    /// Starts `binary serve` with its state below `folder`, granting `data`, and waits until it listens.
    ///
    /// # Errors
    /// If the process cannot be started or ends before it listens; its errors are on stderr.
    pub fn start(binary: &Path, folder: &Path, data: &str, arguments: &[&str]) -> io::Result<Self> {
        Self::start_as(Command::new(binary), folder, data, arguments)
    }

    /// Like [`start`](Self::start), with a command that executes the binary: with an environment, or behind a wrapper that
    /// pins it to a core.
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
    /// As for [`start`](Self::start).
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// `http://` or `https://` and where it listens.
    pub fn url(&self) -> String {
        self.listening.url.clone()
    }

    /// The URL of its remote admin listener, if there is one.
    pub fn admin_url(&self) -> Option<&str> {
        self.listening.admin_url.as_deref()
    }

    /// The file with its token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it exits.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Kills it, as a crash would.
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

/// The `listening` event of a host.
struct Listening {
    url: String,
    address: SocketAddr,
    admin_url: Option<String>,
}

/// Reads `{"event":"listening","url":"http://127.0.0.1:PORT",...}`, the first line a host prints with `--json`.
fn listening(child: &mut Child) -> io::Result<Listening> {
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("the host has no standard output"))?;
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
        })
        .ok_or_else(|| io::Error::other(format!("the host ended before it listened, with output {line:?}")))
}
