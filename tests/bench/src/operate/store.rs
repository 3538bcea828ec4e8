//! A bucket with one object that fails in one of eight ways, on threads.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Unavailable,
    Denied,
    NoBucket,
    Reset,
    Hang,
    Refused,
    SlowFirstByte,
    BrokenBody,
}

impl Fault {
    pub(super) const ALL: [(Self, &'static str); 8] = [
        (Self::Unavailable, "503"),
        (Self::Denied, "403"),
        (Self::NoBucket, "404"),
        (Self::Reset, "reset"),
        (Self::Hang, "hang"),
        (Self::Refused, "refused"),
        (Self::SlowFirstByte, "slow"),
        (Self::BrokenBody, "broken"),
    ];
}

/// Slower than any store, and faster than a request's own deadline.
const FIRST_BYTE: Duration = Duration::from_secs(20);

const OBJECT: &str = "photo";

/// Listens until the process ends, or connections are to be refused.
pub(super) struct Bucket {
    pub(super) address: SocketAddr,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Bucket {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, fault) = (listener.local_addr()?, Arc::new(Mutex::new(None)));
        let felt = Arc::clone(&fault);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let fault = *lock(&felt);
                if fault == Some(Fault::Refused) {
                    return;
                }
                // A client that left is no concern of the store's.
                thread::spawn(move || answer(stream, fault).ok());
            }
        });
        Ok(Self { address, fault })
    }

    pub(super) fn fail(&self, fault: Fault) -> Result<()> {
        *lock(&self.fault) = Some(fault);
        if fault == Fault::Refused {
            // The last connection that is taken, after which nothing listens.
            TcpStream::connect(self.address).context("the bucket does not listen")?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn answer(mut stream: TcpStream, fault: Option<Fault>) -> std::io::Result<()> {
    if fault == Some(Fault::Reset) {
        // Closing with a request unread is a reset.
        stream.peek(&mut [0])?;
        return Ok(());
    }
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
        head.extend_from_slice(&byte);
    }
    let lists = String::from_utf8_lossy(&head).contains("list-type");
    let error = |code: &str| format!("<Error><Code>{code}</Code></Error>");
    let (status, body) = match fault {
        Some(Fault::Unavailable) => ("503 Slow Down", error("SlowDown")),
        Some(Fault::Denied) => ("403 Forbidden", error("AccessDenied")),
        Some(Fault::NoBucket) => ("404 Not Found", error("NoSuchBucket")),
        Some(Fault::Hang) => {
            // Until the client gives up.
            return stream.read(&mut byte).map(drop);
        }
        _ if lists => (
            "200 OK",
            format!(
                "<ListBucketResult><Name>photos</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents>\
                 <Key>set/a.jpg</Key><LastModified>2026-11-26T00:00:00.000Z</LastModified><ETag>\"1\"</ETag><Size>{}</Size>\
                 <StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>",
                OBJECT.len()
            ),
        ),
        _ => ("200 OK", OBJECT.to_owned()),
    };
    if fault == Some(Fault::SlowFirstByte) {
        thread::sleep(FIRST_BYTE);
    }
    let sent = match fault {
        Some(Fault::BrokenBody) => body.len() / 2,
        _ => body.len(),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\nLast-Modified: Thu, 26 Nov 2026 00:00:00 GMT\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body.as_bytes().get(..sent).unwrap_or_default())
}
