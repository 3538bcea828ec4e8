//! Traces that jobs and hosts export by OTLP over HTTP.

use crate::harness::{Scratch, binary, demo, events, frostline};
use frostline_e2e::{Finished, HostProcess, finish};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const STARTER: &str = "00f067aa0ba902b7";

/// Request to the collector.
struct Export {
    head: String,
    body: Vec<u8>,
}

/// Collector that stores all exports.
struct Collector {
    url: String,
    exports: Arc<Mutex<Vec<Export>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let exports: Arc<Mutex<Vec<Export>>> = Arc::default();
        let kept = Arc::clone(&exports);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream.unwrap(), &kept));
            }
        });
        Self { url, exports }
    }

    /// Returns all spans with their service names.
    fn spans(&self) -> Vec<(String, Span)> {
        let mut spans = Vec::new();
        for export in &*self.exports.lock() {
            let request = ExportTraceServiceRequest::decode(export.body.as_slice()).unwrap();
            for of_service in request.resource_spans {
                let resource = of_service.resource.unwrap();
                let service = text(&resource.attributes, "service.name").unwrap();
                let all = of_service.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(all.map(|span| (service.clone(), span)));
            }
        }
        spans
    }
}

/// Answers the exports of a connection.
fn serve(stream: TcpStream, kept: &Mutex<Vec<Export>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            let line = line.to_lowercase();
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap();
            }
            head += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        kept.lock().push(Export { head, body });
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        reader.get_mut().write_all(answer).unwrap();
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|pair| pair.key == key)?;
    let AnyValue { value } = found.value.as_ref()?;
    value.as_ref()
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    match value(attributes, key)? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts a host with the photos that exports to `collector` under a separate service name.
fn host(scratch: &Scratch, collector: &Collector) -> HostProcess {
    let mut command = Command::new(binary());
    command
        .env(ENDPOINT, &collector.url)
        .env("OTEL_SERVICE_NAME", "store-1");
    let photos = scratch.path("photos");
    HostProcess::start_as(command, scratch.folder(), photos.to_str().unwrap(), &[]).unwrap()
}

/// Terminates a host, which exports the remaining spans.
fn end(host: &mut HostProcess) {
    let id = host.id().to_string();
    assert_eq!(
        finish(Command::new("kill").args(["-TERM", &id])).unwrap().code,
        Some(0)
    );
    assert!(host.wait().unwrap().success());
}

struct Trace<'a>(Vec<&'a (String, Span)>);

impl<'a> Trace<'a> {
    fn find(spans: &'a [(String, Span)], trace: &str) -> Self {
        Self(
            spans
                .iter()
                .filter(|(_, span)| hex(&span.trace_id) == trace)
                .collect(),
        )
    }

    fn of_service(&self, wanted: &str) -> Vec<&'a Span> {
        let spans = self.0.iter().filter(|(service, _)| service == wanted);
        spans.map(|(_, span)| span).collect()
    }

    /// Asserts that the trace has a root span named `job`, the job's calls, and the host's work for each
    /// call.
    fn assert_job(&self, job: &str) {
        let (root, calls): (Vec<&Span>, Vec<&Span>) = self
            .of_service("frostline-trainer")
            .into_iter()
            .partition(|span| span.name == job);
        assert_eq!(
            (root.len(), hex(&root[0].parent_span_id)),
            (1, STARTER.to_owned())
        );
        for call in &calls {
            assert_eq!(call.parent_span_id, root[0].span_id, "{call:?}");
        }
        let calls: HashSet<&[u8]> = calls.iter().map(|call| call.span_id.as_slice()).collect();
        let host = self.of_service("store-1");
        let extractions = host.iter().filter(|span| span.name == "POST /v1/extractions");
        assert!(extractions.clone().count() > 0, "{host:?}");
        let ids: HashSet<&[u8]> = extractions.clone().map(|span| span.span_id.as_slice()).collect();
        for stage in ["read", "decode", "lane", "run", "encode"] {
            let mut stages = host.iter().filter(|span| span.name == stage).peekable();
            assert!(stages.peek().is_some(), "{stage}: {host:?}");
            for span in stages {
                assert!(ids.contains(span.parent_span_id.as_slice()), "{span:?}");
                assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
            }
        }
        for span in extractions {
            assert!(calls.contains(span.parent_span_id.as_slice()), "{span:?}");
            let said = |key: &str| text(&span.attributes, key);
            assert_eq!(said("frostline.tenant").as_deref(), Some("default"));
            assert_eq!(said("frostline.outcome").as_deref(), Some("done"));
            assert_eq!(said("frostline.extraction").map(|id| id.len()), Some(16));
            let status = value(&span.attributes, "http.response.status_code");
            assert_eq!(status, Some(&Value::IntValue(200)));
        }
    }
}

#[test]
fn a_job_and_its_extractions_are_one_trace() {
    let collector = Collector::start();
    let scratch = Scratch::with_photos(4, 1);
    let mut host = host(&scratch, &collector);
    let (url, token_file) = (host.url(), host.token_file().to_owned());
    let run = |trace: &str, flags: &str, command: &mut Command| {
        command
            .args(["--host", &url, "--token-file", token_file.to_str().unwrap()])
            .env(ENDPOINT, &collector.url)
            .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hush")
            .env("TRACEPARENT", format!("00-{trace}-{STARTER}-{flags}"));
        events(&finish(command).unwrap());
    };
    let train = || scratch.train_command(&["--split", "features"]);
    let mut extract = frostline();
    extract
        .args(["extract", "--json", "--cut", "features", "--model"])
        .arg(demo("backbone.onnx"))
        .arg("--data")
        .arg(scratch.path("photos"))
        .arg("--out")
        .arg(scratch.path("rows.parquet"));
    let [trained, extracted, unwanted] = ["3", "4", "5"].map(|digit| digit.repeat(32));
    run(&trained, "01", &mut train());
    run(&extracted, "01", &mut extract);
    // The caller of this job disabled sampling.
    run(&unwanted, "00", &mut train());
    end(&mut host);

    let spans = collector.spans();
    let jobs = [(&trained, "frostline train"), (&extracted, "frostline extract")];
    for (trace, job) in jobs {
        Trace::find(&spans, trace).assert_job(job);
    }
    let others = spans
        .iter()
        .filter(|(_, span)| jobs.iter().all(|(trace, _)| hex(&span.trace_id) != **trace));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&(String, Span)>::new());

    let token = fs::read_to_string(&token_file).unwrap();
    let exports = collector.exports.lock();
    for export in &*exports {
        assert!(export.head.starts_with("post /v1/traces "), "{}", export.head);
        let told = String::from_utf8_lossy(&export.body);
        assert!(!told.contains(token.trim()) && !told.contains("hush"), "{told}");
    }
    assert!(exports.iter().any(|export| export.head.contains("x-key: hush")));
}

/// Runs a job with an embedded host and a collector at `url`.
fn job_with_collector(url: &str) -> Finished {
    let scratch = Scratch::with_photos(4, 1);
    let mut command = scratch.train_command(&["--split", "features"]);
    command
        .env(ENDPOINT, url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hush")
        .env("RUST_LOG", "debug");
    let run = finish(&mut command).unwrap();
    assert!(!run.stderr.contains("hush"), "{}", run.stderr);
    events(&run);
    run
}

fn warnings(run: &Finished) -> Vec<&str> {
    let lines = run.stderr.lines();
    lines
        .filter(|line| line.contains("\"WARN\"") && line.contains("traces"))
        .collect()
}

mod long {
    use super::*;

    #[test]
    fn an_unavailable_collector_causes_one_warning() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Accepts connections but never answers.
        let silent = job_with_collector(&url);
        assert_eq!(warnings(&silent).len(), 1, "{}", silent.stderr);
        drop(listener);
        let absent = job_with_collector(&url);
        assert_eq!(warnings(&absent).len(), 1, "{}", absent.stderr);
        for wrong in ["localhost:4317", "http://me:hush@localhost:4318"] {
            let wrong = job_with_collector(wrong);
            let warnings = warnings(&wrong);
            assert!(
                warnings.len() == 1 && warnings[0].contains(ENDPOINT),
                "{}",
                wrong.stderr
            );
        }
    }
}
