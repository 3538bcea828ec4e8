//! Plain requests, for whoever counts bytes or asks as fast as it can.

use anyhow::{Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(30);

/// The body of an answer, over a connection of its own.
///
/// # Errors
/// Of a host that is gone, and of an answer that is none or is cut.
pub(super) fn get(address: SocketAddr, token: &str, path: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LONGEST))?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: host\r\nAuthorization: Bearer {token}\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    match head {
        Some(head) => Ok(answer.split_off(head + 4)),
        None => bail!("no answer"),
    }
}
