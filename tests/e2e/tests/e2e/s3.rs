//! The main job with photos in a bucket of moto's S3 server.

use crate::harness::{Scratch, events, series};
use frostline_e2e::finish;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts moto's server on a free port, fills a bucket from a folder, and prints the URL. Optionally, the
/// reads n to m of each object fail with an HTTP status and an error code.
const SERVER: &str = r#"
import collections, pathlib, sys, threading
try:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server
    import boto3
except ImportError:
    print("missing"); sys.exit()
app = DomainDispatcherApplication(create_backend_app)
reads, first, last, status, code = collections.Counter(), 1, 0, "", ""
if len(sys.argv) > 2:
    first, last, status, code = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
def failing(environ, start):
    path = environ["PATH_INFO"]
    if environ["REQUEST_METHOD"] == "GET" and path.endswith(".jpg"):
        reads[path] += 1
        if first <= reads[path] <= last:
            start(status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>with a-secret-key</Message></Error>".encode()]
    return app(environ, start)
server = make_server("127.0.0.1", 0, failing, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
store = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
store.create_bucket(Bucket="photos")
root = pathlib.Path(sys.argv[1])
for file in root.rglob("*"):
    if file.is_file():
        store.upload_file(str(file), "photos", "shop/" + file.relative_to(root).as_posix())
print(url, flush=True)
sys.stdin.read()
"#;

pub(crate) struct Moto {
    child: Child,
    pub(crate) url: String,
}

impl Moto {
    pub(crate) fn start(scratch: &Scratch) -> Self {
        Self::with_files(&scratch.path("photos"))
    }

    /// Starts a server with the files of a folder below `s3://photos/shop`.
    pub(crate) fn with_files(folder: &Path) -> Self {
        Self::failing(folder, &[])
    }

    /// Like [`Self::with_files`], with failing reads. `faults` has the first and last failing read of each
    /// object, the status and the code.
    fn failing(folder: &Path, faults: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", SERVER])
            .arg(folder)
            .args(faults)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line.trim().to_owned();
        let moto = Self { child, url };
        assert!(
            moto.url.starts_with("http://"),
            "cannot start moto; run cargo xtask test to install it"
        );
        moto
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn photos_in_a_bucket_train_like_photos_in_a_folder() {
    let scratch = Scratch::with_photos(6, 2);
    let moto = Moto::start(&scratch);
    let local = series(&events(&scratch.train(&["--split", "features"])), "step", "loss");
    let mut train = scratch.train_command(&["--split", "features", "--data", "s3://photos/shop"]);
    let run = finish(with_credentials(&mut train, &moto.url)).unwrap();
    assert_eq!(series(&events(&run), "step", "loss"), local);
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let scratch = Scratch::with_photos(2, 1);
    let moto = Moto::start(&scratch);
    let mut train = scratch.train_command(&["--data", "s3://nowhere/shop"]);
    let run = finish(with_credentials(&mut train, &moto.url)).unwrap();
    scratch.assert_failed(&run, &["nowhere"]);
    assert!(!run.stderr.contains("a-secret-key"));
}

pub(crate) fn with_credentials<'a>(command: &'a mut Command, url: &str) -> &'a mut Command {
    command
        .env("AWS_ENDPOINT_URL", url)
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "a-secret-key")
}

mod long {
    use super::*;

    #[test]
    fn temporary_slow_downs_lose_no_job_and_no_photo() {
        let scratch = Scratch::with_photos(3, 1);
        // The store fails 14 times, more often than a read is retried. A photo has three attempts with four
        // requests each.
        let moto = Moto::failing(&scratch.path("photos"), &["1", "14", "503 Slow Down", "SlowDown"]);
        let local = series(&events(&scratch.train(&["--split", "features"])), "step", "loss");
        let skipping = [
            "--split",
            "features",
            "--data",
            "s3://photos/shop",
            "--on-bad-sample",
            "skip",
        ];
        let mut train = scratch.train_command(&skipping);
        let run = finish(with_credentials(&mut train, &moto.url)).unwrap();
        assert_eq!(series(&events(&run), "step", "loss"), local);
    }

    #[test]
    fn temporarily_refused_credentials_lose_no_job_and_no_photo() {
        let scratch = Scratch::with_photos(3, 1);
        let photos = scratch.path("photos");
        let local = series(&events(&scratch.train(&["--split", "features"])), "step", "loss");
        let moto = Moto::failing(&photos, &["1", "3", "400 Bad Request", "ExpiredToken"]);
        let skipping = [
            "--split",
            "features",
            "--data",
            "s3://photos/shop",
            "--on-bad-sample",
            "skip",
        ];
        let mut train = scratch.train_command(&skipping);
        let run = finish(with_credentials(&mut train, &moto.url)).unwrap();
        assert!(!run.stderr.contains("a-secret-key"));
        assert_eq!(series(&events(&run), "step", "loss"), local);
    }
}
