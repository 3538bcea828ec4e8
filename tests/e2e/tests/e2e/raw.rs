//! Raw HTTP requests, for cases that the clients do not support.

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// Tenant that sends raw requests to a host.
pub(crate) struct RawClient {
    address: SocketAddr,
    token: String,
    /// Additional header lines, each with a line end.
    pub(crate) headers: String,
}

impl RawClient {
    pub(crate) fn new(address: SocketAddr, token_file: &Path) -> Self {
        let token = fs::read_to_string(token_file).unwrap();
        Self {
            address,
            token: token.trim().to_owned(),
            headers: String::new(),
        }
    }

    /// Sends a request. The host closes the connection after the answer, which the caller reads.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: host\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{}Content-Length: {}\r\n\r\n{body}",
            self.token,
            self.headers,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let mut answer = String::new();
        self.send("GET", path, "").read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let json = match head.contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_owned(),
        };
        serde_json::from_str(&json).expect(&answer)
    }

    /// Builds an extraction request that repeats one photo `samples` times. It uses the tenant's first guest
    /// and model.
    pub(crate) fn extraction(&self, root: &str, split: &str, parameters: &str, samples: usize) -> String {
        let pin = |kind: &str| {
            let all = self.get(&format!("/v1/{kind}"));
            serde_json::json!({ "name": all[0]["name"], "sha256": all[0]["sha256"] })
        };
        let objects = self.get(&format!("/v1/objects?root={root}&limit=1"));
        let key = &objects["objects"][0]["key"];
        let samples = (0..samples).map(|position| serde_json::json!({ "position": position, "key": key }));
        let request = serde_json::json!({
            "root": root, "split": split, "guest": pin("guests"), "model": pin("models"), "parameters": parameters,
            "samples": samples.collect::<Vec<_>>(),
        });
        request.to_string()
    }
}

/// Joins the chunks of a body.
fn unchunked(mut body: &str) -> String {
    let mut joined = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        joined.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    joined
}
