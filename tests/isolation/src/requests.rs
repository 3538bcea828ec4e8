//! Raw requests that no well-behaved client sends.

use crate::case::{Action, AttackKind, Case, Expected};
use crate::exchange::{
    AfterSend, BuildRequest, RawRequest, abandon, extraction, get, head, key, listing, post, read,
};
use crate::scene::Scene;
use anyhow::Context;
use std::fmt::Write as _;
use std::time::Duration;

/// Tuples of name, description, expected code, expected word and constructor.
const REQUESTS: &[(&str, &str, &str, &str, BuildRequest)] = &[
    ("bad-token", "sends an unknown token", "401", "token", |_| {
        read(
            "GET /v1/guests HTTP/1.1\r\nHost: host\r\nConnection: close\r\nAuthorization: Bearer nobody\r\n\r\n",
        )
    }),
    ("no-token", "sends no token", "401", "token", |_| {
        read("GET /v1/guests HTTP/1.1\r\nHost: host\r\nConnection: close\r\n\r\n")
    }),
    (
        "forged-token",
        "sends the neighbor's token with a different secret",
        "401",
        "token",
        |scene| {
            let token = scene.neighbor().token().to_owned();
            let forged = format!(
                "{}{}",
                token.get(..token.len() - 8).context("a short token")?,
                "00000000"
            );
            read(format!(
                "GET /v1/guests HTTP/1.1\r\nHost: host\r\nConnection: close\r\nAuthorization: Bearer {forged}\r\n\r\n"
            ))
        },
    ),
    (
        "neighbors-guest",
        "requests the neighbor's guest",
        "404",
        "unknown guest",
        |scene| get(scene, "/v1/guests/neighbors"),
    ),
    (
        "neighbors-root",
        "lists the neighbor's data",
        "404",
        "not granted",
        |scene| listing(scene, &scene.neighbor().root()?),
    ),
    (
        "neighbors-object",
        "reads the neighbor's object through the parent folder",
        "row",
        "key",
        |scene| key(scene, &format!("../{}/text.jpg", scene.neighbor().name())),
    ),
    (
        "neighbors-log",
        "requests the log of the neighbor's guest",
        "404",
        "unknown guest",
        |scene| get(scene, "/v1/guests/neighbors/log"),
    ),
    (
        "neighbors-model",
        "requests the neighbor's model",
        "404",
        "unknown model",
        |scene| get(scene, "/v1/models/neighbors"),
    ),
    (
        "neighbors-profile",
        "requests the profile of the neighbor's model",
        "404",
        "unknown model",
        |scene| get(scene, "/v1/profiles/neighbors"),
    ),
    (
        "remove-neighbors",
        "removes the neighbor's model",
        "404",
        "unknown model",
        |scene| read(head(scene, "DELETE", "/v1/models/neighbors", "")),
    ),
    (
        "other-root",
        "lists a folder outside the grant",
        "404",
        "not granted",
        |scene| listing(scene, "/etc"),
    ),
    (
        "parent-root",
        "lists the parent folder of the data root",
        "404",
        "not granted",
        |scene| listing(scene, &format!("{}/..", scene.root()?)),
    ),
    (
        "dotted-root",
        "lists the parent folder through a subfolder",
        "404",
        "not granted",
        |scene| listing(scene, &format!("{}/photos/../..", scene.root()?)),
    ),
    (
        "parent-key",
        "reads outside the data root",
        "row",
        "key",
        |scene| key(scene, "../secret"),
    ),
    ("absolute-key", "reads an absolute path", "row", "key", |scene| {
        key(scene, "/etc/passwd")
    }),
    (
        "linked-key",
        "reads a link to a file outside the data root",
        "row",
        "outside of the data root",
        |scene| key(scene, "linked"),
    ),
    (
        "piped-key",
        "reads a pipe without a writer",
        "row",
        "pipe",
        |scene| key(scene, "piped"),
    ),
    (
        "encoded-key",
        "reads outside the data root with a percent-encoded key",
        "row",
        "",
        |scene| key(scene, "%2e%2e/secret"),
    ),
    (
        "null-key",
        "reads a key with a zero byte",
        "row",
        "key",
        |scene| key(scene, "photos\u{0}secret"),
    ),
    ("empty-key", "reads a key without a name", "400", "key", |scene| {
        key(scene, "")
    }),
    (
        "endless-key",
        "reads a key of a hundred thousand letters",
        "400",
        "key",
        |scene| key(scene, &"k".repeat(100_000)),
    ),
    (
        "same-position",
        "requests a position twice",
        "400",
        "duplicate",
        |scene| extraction(scene, r#"[{"position":0,"key":"a"},{"position":0,"key":"b"}]"#),
    ),
    ("no-samples", "requests no samples", "400", "samples", |scene| {
        extraction(scene, "[]")
    }),
    (
        "many-samples",
        "requests 100,000 samples",
        "400",
        "samples",
        |scene| {
            let mut samples = String::from("[");
            for position in 0..100_000 {
                write!(samples, r#"{{"position":{position},"key":"a"}},"#)?;
            }
            samples.pop();
            extraction(scene, &(samples + "]"))
        },
    ),
    ("nested-json", "sends a million brackets", "400", "", |scene| {
        post(scene, "/v1/extractions", &b"[".repeat(1_000_000))
    }),
    (
        "large-json",
        "sends twenty megabytes of JSON",
        "413",
        "the limit",
        |scene| post(scene, "/v1/extractions", &b" ".repeat(20 << 20)),
    ),
    ("unknown-field", "sends an unknown field", "400", "", |scene| {
        post(scene, "/v1/extractions", br#"{"rot":"x"}"#)
    }),
    (
        "large-header",
        "sends a header of a megabyte",
        "431",
        "",
        |scene| {
            read(head(
                scene,
                "GET",
                "/v1/guests",
                &format!("X: {}\r\n", "x".repeat(1 << 20)),
            ))
        },
    ),
    ("many-headers", "sends ten thousand headers", "431", "", |scene| {
        read(head(scene, "GET", "/v1/guests", &"X: x\r\n".repeat(10_000)))
    }),
    ("two-lengths", "declares two body lengths", "400", "", |scene| {
        read(
            head(
                scene,
                "POST",
                "/v1/extractions",
                "Content-Length: 5\r\nContent-Length: 6\r\n",
            ) + "{}{}{}",
        )
    }),
    (
        "length-and-chunks",
        "declares a length but sends chunks, to smuggle a request",
        "400",
        "",
        |scene| {
            let smuggled = "0\r\n\r\nGET /v1/guests HTTP/1.1\r\nHost: host\r\n\r\n";
            read(
                head(
                    scene,
                    "POST",
                    "/v1/extractions",
                    "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                ) + smuggled,
            )
        },
    ),
    (
        "chunked-twice",
        "declares two chunked encodings and hides a request in the body",
        "400",
        "Transfer-Encoding",
        |scene| {
            let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
            read(persistent(scene, "POST", "/v1/extractions", twice) + "0\r\n\r\n" + &hidden(scene))
        },
    ),
    (
        "bare-line-feeds",
        "ends lines with bare line feeds, and hides a request after the first one",
        "200",
        "",
        |scene| read(hidden(scene).replace("\r\n", "\n") + &hidden(scene)),
    ),
    (
        "bad-chunk",
        "sends a chunk with an invalid length",
        "400",
        "",
        |scene| {
            read(
                head(scene, "POST", "/v1/extractions", "Transfer-Encoding: chunked\r\n")
                    + "zz\r\n{}\r\n0\r\n\r\n",
            )
        },
    ),
    (
        "huge-upload",
        "announces an upload of a terabyte",
        "413",
        "the limit",
        |scene| {
            read(head(
                scene,
                "PUT",
                "/v1/models/huge",
                "Content-Length: 1099511627776\r\n",
            ))
        },
    ),
    (
        "lying-upload",
        "uploads bytes that differ from the declared hash",
        "400",
        "SHA-256",
        |scene| {
            let path = format!("/v1/guests/liar?sha256={}", "0".repeat(64));
            read(head(scene, "PUT", &path, "Content-Length: 4\r\n") + "\0asm")
        },
    ),
    (
        "bad-name",
        "uploads with slashes in the name",
        "400",
        "",
        |scene| read(head(scene, "PUT", "/v1/guests/..%2f..%2fetc", "Content-Length: 1\r\n") + "x"),
    ),
    (
        "slow-upload",
        "announces a megabyte, sends a byte and disconnects",
        "left",
        "",
        |scene| {
            Ok(RawRequest {
                bytes: (head(scene, "PUT", "/v1/guests/slow", "Content-Length: 1000000\r\n") + "x").into(),
                then: AfterSend::Disconnect(Duration::from_secs(1)),
            })
        },
    ),
    (
        "slow-reader",
        "requests all photos without reading the answer",
        "left",
        "",
        |scene| abandon(scene, Duration::from_secs(2)),
    ),
    (
        "abandoned",
        "requests all photos and disconnects immediately",
        "left",
        "",
        |scene| abandon(scene, Duration::ZERO),
    ),
    ("silent", "connects and sends nothing", "closed", "", |_| read("")),
    (
        "half-a-header",
        "sends an incomplete request",
        "closed",
        "",
        |_| read("GET /v1/guests HTT"),
    ),
    ("no-http", "uses a protocol other than HTTP", "400", "", |_| {
        read("\u{16}\u{3}\u{1} hello\r\n\r\n")
    }),
];

/// Returns a request for the list of models.
fn hidden(scene: &Scene) -> String {
    persistent(scene, "GET", "/v1/models", "")
}

/// Formats the head of a request that keeps the connection open.
fn persistent(scene: &Scene, method: &str, path: &str, more: &str) -> String {
    head(scene, method, path, more).replace("Connection: close\r\n", "")
}

pub(crate) fn all() -> Vec<Case> {
    let case =
        |&(name, does, code, words, ask): &(&str, &str, &'static str, &'static str, BuildRequest)| Case {
            name: name.to_owned(),
            description: does.to_owned(),
            class: AttackKind::Request,
            expected: Expected::new(code, &[words]),
            act: Action::Request(ask),
        };
    REQUESTS.iter().map(case).collect()
}
