//! Common behaviors of local files, memory, and S3 on moto's server.

use crate::{Guard, LARGEST_READ, ObjectError, ReadRoom, Store};
use bytes::Bytes;
use frostline_batching::Charge;
use frostline_tensor::{BoxFuture, ObjectReader, OpError, OpErrorCode, SampleRef};
use futures::FutureExt;
use futures::future::{join_all, pending};
use parking_lot::Mutex;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Checks the behavior that all stores share.
async fn behaves(store: &Store) {
    for key in ["b/2.jpg", "a.jpg", "b/1.jpg", "c d/ü.jpg"] {
        store.put_new(key, bytes(key)).await.unwrap();
    }
    assert!(
        store
            .put_new("a.jpg", bytes("other"))
            .await
            .unwrap_err()
            .is_already_there()
    );
    assert_eq!(store.read("a.jpg").await.unwrap(), bytes("a.jpg"));
    assert_eq!(store.size(&SampleRef::new("b/1.jpg")).await.unwrap(), 7);
    assert_eq!(
        store.read_range(&SampleRef::new("b/1.jpg"), 2..4).await.unwrap(),
        bytes("1.")
    );
    assert_eq!(
        store
            .read_range(&SampleRef::new("b/1.jpg"), 5..100)
            .await
            .unwrap(),
        bytes("pg")
    );
    assert_eq!(
        store
            .read_range(&SampleRef::new("b/1.jpg"), 100..200)
            .await
            .unwrap(),
        Bytes::new()
    );
    assert!(matches!(
        store.read("nothing.jpg").await,
        Err(ObjectError::NotFound { .. })
    ));
    assert!(matches!(
        store.read("../a.jpg").await,
        Err(ObjectError::Key { .. })
    ));
    assert!(matches!(
        store.read_sample(&SampleRef::new("a.jpg"), 4).await,
        Err(ObjectError::TooLarge { size: 5, .. })
    ));

    let mut keys = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(after.as_deref(), 3).await.unwrap();
        assert!(page.objects.len() <= 3);
        keys.extend(page.objects.iter().map(|object| object.sample.key.clone()));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(keys, ["a.jpg", "b/1.jpg", "b/2.jpg", "c d/ü.jpg"]);

    let listed = store.list(None, 10).await.unwrap().objects.remove(0);
    assert_eq!(
        store.read_sample(&listed.sample, LARGEST_READ).await.unwrap(),
        bytes("a.jpg")
    );
    store.put("a.jpg", bytes("a replaced one")).await.unwrap();
    let changed = [
        store.read_sample(&listed.sample, LARGEST_READ).await.map(drop),
        store.read_range(&listed.sample, 2..4).await.map(drop),
        store.size(&listed.sample).await.map(drop),
    ];
    for changed in changed {
        assert!(
            matches!(&changed, Err(ObjectError::Changed { key, .. }) if key == "a.jpg"),
            "{changed:?}"
        );
    }

    store.delete("a.jpg").await.unwrap();
    assert!(matches!(
        store.size(&SampleRef::new("a.jpg")).await,
        Err(ObjectError::NotFound { .. })
    ));
}

#[tokio::test]
async fn memory_behaves() {
    behaves(&Store::open("memory:///root").unwrap()).await;
}

#[tokio::test]
async fn local_files_behave() {
    let folder = tempfile::tempdir().unwrap();
    behaves(&Store::open(folder.path().to_str().unwrap()).unwrap()).await;
    let url = format!("file://{}", folder.path().display());
    assert_eq!(
        Store::open(&url)
            .unwrap()
            .list(None, 10)
            .await
            .unwrap()
            .objects
            .len(),
        3
    );
}

#[tokio::test]
async fn a_link_out_of_the_root_is_neither_listed_nor_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(folder.path().join("secret.txt"), "secret").unwrap();
    std::fs::write(root.join("a.jpg"), "a").unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret.txt"), root.join("link.jpg")).unwrap();
    std::os::unix::fs::symlink(folder.path(), root.join("up")).unwrap();
    let store = Store::open(root.to_str().unwrap()).unwrap();
    for key in ["link.jpg", "up/secret.txt"] {
        assert!(
            matches!(store.read(key).await, Err(ObjectError::Key { .. })),
            "{key}"
        );
    }
    let keys: Vec<_> = store
        .list(None, 10)
        .await
        .unwrap()
        .objects
        .into_iter()
        .map(|object| object.sample.key)
        .collect();
    assert_eq!(keys, ["a.jpg"]);
}

#[test]
fn roots_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("photo.jpg");
    std::fs::write(&file, "x").unwrap();
    for root in ["ftp://host/x", "s3://", file.to_str().unwrap()] {
        assert!(
            matches!(Store::open(root), Err(ObjectError::Root { .. })),
            "{root}"
        );
    }
    let missing = folder.path().join("nowhere");
    let error = Store::open(missing.to_str().unwrap()).unwrap_err();
    assert!(matches!(&error, ObjectError::NoSuchRoot { .. }) && error.to_string().contains("nowhere"));
}

#[tokio::test]
async fn a_folder_that_was_removed_is_not_a_missing_object() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.jpg"), "x").unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    assert!(matches!(
        store.read("b.jpg").await,
        Err(ObjectError::NotFound { .. })
    ));
    folder.close().unwrap();
    for error in [
        store.read("a.jpg").await.unwrap_err(),
        store.size(&SampleRef::new("a.jpg")).await.unwrap_err(),
        store.list(None, 10).await.unwrap_err(),
    ] {
        assert!(matches!(&error, ObjectError::NoSuchRoot { .. }), "{error:?}");
    }
}

/// moto's S3 server with a bucket `photos`. Prints the address and exits when stdin closes.
const SERVER: &str = r#"
import logging, sys
from concurrent.futures import ThreadPoolExecutor
logging.getLogger("werkzeug").disabled = True
try:
    from moto.server import ThreadedMotoServer
    import boto3
except ImportError:
    print("missing"); sys.exit()
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
store = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="id", aws_secret_access_key="key")
store.create_bucket(Bucket="photos")
keys = [f"many/{number:04}.jpg" for number in range(int(sys.argv[1]))]
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda key: store.put_object(Bucket="photos", Key=key, Body=b"x"), keys))
print(url, flush=True)
sys.stdin.read()
"#;

const SECRET: &str = "a-key-nobody-may-see";

struct Moto {
    process: Child,
    url: String,
}

impl Moto {
    /// Starts a server whose bucket contains `objects` objects under `many/`. With `checks_credentials`, all
    /// credentials are unknown. `cargo xtask test` installs moto.
    fn start(objects: usize, checks_credentials: bool) -> Self {
        let mut server = Command::new("python3");
        server.args(["-c", SERVER, &objects.to_string()]);
        if checks_credentials {
            // Everything after the bucket's creation is checked.
            server.env("INITIAL_NO_AUTH_ACTION_COUNT", "1");
        }
        let process = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut moto = Self {
            process: process.unwrap(),
            url: String::new(),
        };
        let mut line = String::new();
        BufReader::new(moto.process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(
            line.trim() != "missing",
            "moto is not installed; run cargo xtask test"
        );
        assert!(line.starts_with("http://"), "moto's server said {line:?}");
        moto.url = line.trim().to_owned();
        moto
    }

    fn open(&self, root: &str) -> Store {
        let settings = [
            ("AWS_ENDPOINT_URL", self.url.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ];
        Store::open_with(
            root,
            settings.map(|(name, value)| (name.to_owned(), value.to_owned())),
        )
        .unwrap()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn s3_behaves() {
    let moto = Moto::start(1100, false);
    behaves(&moto.open("s3://photos/some/root")).await;

    let many = moto.open("s3://photos/many");
    let first = many.list(None, 5000).await.unwrap();
    assert_eq!(
        (first.objects.len(), first.next.as_deref()),
        (1000, Some("0999.jpg"))
    );
    let rest = many.list(first.next.as_deref(), 1000).await.unwrap();
    assert_eq!((rest.objects.len(), rest.next), (100, None));

    let nowhere = moto.open("s3://nowhere/root");
    for error in [
        nowhere.list(None, 10).await.unwrap_err(),
        nowhere.read("a.jpg").await.unwrap_err(),
    ] {
        assert!(matches!(&error, ObjectError::NoSuchRoot { .. }), "{error:?}");
    }

    drop(moto);
    let error = many.read("0000.jpg").await.unwrap_err();
    assert!(
        matches!(&error, ObjectError::Unreachable { reason, .. } if reason.contains("refused")),
        "{error:?}"
    );
}

#[tokio::test]
async fn s3_refuses_unknown_credentials() {
    let moto = Moto::start(0, true);
    let store = moto.open("s3://photos/root");
    let attempts = [
        store.read("a.jpg").await.map(drop).unwrap_err(),
        store.list(None, 10).await.map(drop).unwrap_err(),
        store.put_new("a.jpg", bytes("x")).await.unwrap_err(),
    ];
    for error in attempts {
        assert!(
            matches!(&error, ObjectError::Denied { reason, .. } if reason == "InvalidAccessKeyId"),
            "{error:?}"
        );
        assert!(error.to_string().contains("AWS_ACCESS_KEY_ID") && !error.to_string().contains(SECRET));
    }
}

#[tokio::test]
async fn a_store_implements_object_reader() {
    let store = Store::open("memory://").unwrap();
    store.put("a.jpg", bytes("0123456789")).await.unwrap();
    let reader: &dyn ObjectReader = &store;
    assert_eq!(reader.size(SampleRef::new("a.jpg")).await.unwrap(), 10);
    assert_eq!(reader.read(SampleRef::new("a.jpg"), 8..20).await.unwrap(), b"89");
    let error = reader.size(SampleRef::new("b.jpg")).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::NotFound);
}

/// Memory of a tenant that is used up. Counts the reads that wait.
#[derive(Default)]
struct UsedUp(AtomicUsize);

impl ReadRoom for UsedUp {
    fn reserve(&self, _: u64) -> BoxFuture<Result<Guard, OpError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        pending().boxed()
    }

    fn try_reserve(&self, _: u64) -> Option<Guard> {
        None
    }

    fn grow(&self, _: u64) -> Result<Guard, OpError> {
        Ok(Box::new(()))
    }

    fn count_read(&self, _: u64) {}
}

#[tokio::test]
async fn reads_that_wait_for_a_tenants_memory_do_not_delay_its_neighbors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "photo").unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let greedy: Vec<_> = ["one", "two", "three"]
        .map(|tenant| {
            let room = Arc::new(UsedUp::default());
            (
                store.for_tenant(tenant).reading_into(Arc::clone(&room) as _),
                room,
            )
        })
        .into();
    let mut waiting = join_all(
        greedy
            .iter()
            .flat_map(|(store, _)| (0..200).map(|_| store.read("a"))),
    );
    // A tenant can use 32 of the 64 permits, so these tenants could use all of them.
    while greedy.iter().any(|(_, room)| room.0.load(Ordering::SeqCst) < 32) {
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::task::yield_now().await;
    }
    let read = store.for_tenant("neighbor").read("a").await;
    assert_eq!(read.unwrap(), bytes("photo"));
    for (_, room) in &greedy {
        assert_eq!(room.0.load(Ordering::SeqCst), 32);
    }
}

/// Memory without a limit, and an account.
struct Paid(Arc<Mutex<Duration>>);

impl ReadRoom for Paid {
    fn reserve(&self, _: u64) -> BoxFuture<Result<Guard, OpError>> {
        std::future::ready(Ok(Box::new(()) as Guard)).boxed()
    }

    fn try_reserve(&self, _: u64) -> Option<Guard> {
        None
    }

    fn grow(&self, _: u64) -> Result<Guard, OpError> {
        Ok(Box::new(()))
    }

    fn count_read(&self, _: u64) {}

    fn charge(&self) -> Charge {
        let total = Arc::clone(&self.0);
        Charge::new(move |spent| *total.lock() += spent)
    }
}

#[tokio::test]
async fn threads_that_list_and_read_are_paid() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), vec![1; 8 << 20]).unwrap();
    let total: Arc<Mutex<Duration>> = Arc::default();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let store = store.reading_into(Arc::new(Paid(Arc::clone(&total))));
    store.list(None, 10).await.unwrap();
    let listed = *total.lock();
    assert!(!listed.is_zero());
    assert_eq!(store.read("a").await.unwrap().len(), 8 << 20);
    assert!(*total.lock() > listed);
}
