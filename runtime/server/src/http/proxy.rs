//! PROXY protocol, versions 1 and 2. A trusted proxy announces the address of each client in a header. The
//! host can then distinguish clients behind the proxy like direct clients. See
//! <https://haproxy.org/download/3.0/doc/proxy-protocol.txt>.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Signature of version 2. A header of version 1 is at least three bytes longer.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Maximum header length of version 1 according to the specification.
const LONGEST_LINE: usize = 107;

/// Maximum body length of version 2. Addresses need 36 bytes, and extensions by proxies need hundreds of
/// bytes.
const LONGEST_BODY: usize = 4096;

/// Reads the header within `limit` and returns the client address. Returns `None` if the connection is from
/// the proxy itself.
///
/// # Errors
///
/// Returns an error if the header is missing, invalid or late.
pub(super) async fn client(
    stream: &mut (impl AsyncRead + Unpin),
    limit: Duration,
) -> io::Result<Option<IpAddr>> {
    let header = timeout(limit, header(stream)).await;
    header.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Reads the header and returns the client address. Returns `None` if the connection is from the proxy itself
/// or not over IP.
async fn header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut begin = [0; SIGNATURE.len()];
    stream.read_exact(&mut begin).await?;
    if begin == SIGNATURE {
        return binary(stream).await;
    }
    let mut line = begin.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() == LONGEST_LINE {
            return Err(invalid());
        }
        line.push(stream.read_u8().await?);
    }
    let text = std::str::from_utf8(&line).map_err(|_| invalid())?;
    let mut words = text.trim_end().split(' ');
    let kind = (words.next(), words.next());
    let mut source = || {
        words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(invalid)
    };
    match kind {
        (Some("PROXY"), Some("TCP4" | "TCP6")) => source().map(Some),
        (Some("PROXY"), Some("UNKNOWN")) => Ok(None),
        _ => Err(invalid()),
    }
}

async fn binary(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let command = stream.read_u8().await?;
    let family = stream.read_u8().await?;
    let length = usize::from(stream.read_u16().await?);
    if length > LONGEST_BODY {
        return Err(invalid());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    match (command, family >> 4) {
        (0x20, _) | (0x21, 0 | 3) => Ok(None),
        (0x21, 1) => Ok(Some(Ipv4Addr::from(first(&body)?).into())),
        (0x21, 2) => Ok(Some(Ipv6Addr::from(first(&body)?).into())),
        _ => Err(invalid()),
    }
}

fn first<const N: usize>(body: &[u8]) -> io::Result<[u8; N]> {
    body.first_chunk().copied().ok_or_else(invalid)
}

fn invalid() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "missing or invalid PROXY protocol header; enable it in the proxy, or remove its address from proxy_protocol_from",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parse(header: &[u8]) -> io::Result<(Option<IpAddr>, Vec<u8>)> {
        let stream = [header, b"GET /".as_slice()].concat();
        let mut reader = stream.as_slice();
        let client = client(&mut reader, Duration::from_secs(1)).await?;
        Ok((client, reader.to_vec()))
    }

    fn version_2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u16).to_be_bytes();
        [SIGNATURE.as_slice(), &[command, family], &length, body].concat()
    }

    #[tokio::test]
    async fn a_trusted_proxy_says_whose_connection_it_is() {
        let v4 = [192, 0, 2, 7, 10, 0, 0, 2, 0, 1, 0, 2, 3, 0, 0];
        let v6 = [[0x20, 1].as_slice(), &[0; 13], &[9], &[0; 20]].concat();
        for (header, expected) in [
            (
                b"PROXY TCP4 192.0.2.7 10.0.0.2 1 2\r\n".to_vec(),
                Some("192.0.2.7"),
            ),
            (b"PROXY TCP6 2001::9 ::1 1 2\r\n".to_vec(), Some("2001::9")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (version_2(0x21, 0x11, &v4), Some("192.0.2.7")),
            (version_2(0x21, 0x21, &v6), Some("2001::9")),
            (version_2(0x20, 0, &[]), None),
        ] {
            let (client, rest) = parse(&header).await.unwrap();
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(client, expected, "{header:?}");
            assert_eq!(rest, b"GET /", "the request is not consumed");
        }
    }

    #[tokio::test]
    async fn a_broken_header_ends_the_connection() {
        for broken in [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            b"PROXY TCP4 nobody 10.0.0.2 1 2\r\n".to_vec(),
            [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat(),
            version_2(0x21, 0x11, &[1, 2]),
            version_2(0x31, 0x11, &[0; 12]),
            SIGNATURE.to_vec(),
        ] {
            assert!(parse(&broken).await.is_err(), "{broken:?}");
        }
    }
}
