//! Two hosts share state in S3, admins update it on both, and one host is killed repeatedly: are acknowledged
//! updates lost, and is the state always readable?

use crate::report::Report;
use crate::run::{admin, binary, text};
use crate::tiers::{PhotoStore, access};
use anyhow::{Context, Result, bail};
use frostline_e2e::HostProcess;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Duration of the updates.
const SPAN: Duration = Duration::from_secs(40);

/// Run time before each kill.
const LIFE: Duration = Duration::from_millis(1500);

/// Tenant for which both admins create tokens at the same time.
const SHARED: &str = "shared";

/// Maximum number of tokens per admin.
const TOKENS: usize = 12;

struct TestHosts {
    folder: PathBuf,
    state: String,
    store: String,
}

impl TestHosts {
    fn host(&self, name: &str) -> Result<HostProcess> {
        let mut command = Command::new(binary()?);
        command.envs(access(&self.store)).stderr(Stdio::null());
        let folder = self.folder.join(name);
        let local = folder.join("local");
        std::fs::create_dir_all(&local)?;
        let flags = ["--state", &self.state, "--local", text(&local)?];
        Ok(HostProcess::start_as(
            command,
            &folder,
            text(&self.folder)?,
            &flags,
        )?)
    }

    /// Runs `frostline admin` on the host and returns the printed objects: one, or one per line for lists.
    fn admin(&self, name: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        admin(&self.folder.join(name).join("local/admin.sock"), arguments)
    }
}

/// Acknowledged updates.
#[derive(Default)]
struct Acknowledged {
    tenants: BTreeSet<String>,
    tokens: BTreeSet<String>,
}

pub(super) fn run(report: &mut Report) -> Result<()> {
    let server = PhotoStore::start_here(&report.photos())?;
    let folder = tempfile::tempdir()?;
    let hosts = TestHosts {
        folder: folder.path().to_owned(),
        state: "s3://photos/frostline-state".to_owned(),
        store: server.url_beside(),
    };
    let stays = hosts.host("stays")?;
    hosts.admin("stays", &["tenant", "add", SHARED])?;
    let over = AtomicBool::new(false);
    let (one, two, (kills, unreadable)) = std::thread::scope(|scope| {
        let one = scope.spawn(|| write(&hosts, "stays", &over));
        let two = scope.spawn(|| write(&hosts, "dies", &over));
        let deaths = scope.spawn(|| kill_hosts(&hosts, &over));
        std::thread::sleep(SPAN);
        over.store(true, Ordering::Relaxed);
        (one.join(), two.join(), deaths.join().unwrap_or((0, 1)))
    });
    let (one, two) = (joined(one)?, joined(two)?);
    drop(stays);
    let reader = hosts.host("reader")?;
    let tenants: BTreeSet<String> = strings(&hosts.admin("reader", &["tenant", "list"])?, "name");
    let shown = hosts.admin("reader", &["tenant", "show", SHARED])?;
    let tokens = shown.first().and_then(|shown| shown.get("tokens")?.as_array());
    let tokens = strings(tokens.context("a tenant without tokens")?, "id");
    drop(reader);
    let lost = [&one, &two].map(|acknowledged| {
        acknowledged.tenants.difference(&tenants).count() + acknowledged.tokens.difference(&tokens).count()
    });
    let lost: usize = lost.iter().sum();
    let written = one.tenants.len() + two.tenants.len() + one.tokens.len() + two.tokens.len();
    println!(
        "two hosts with shared state in S3: {written} updates acknowledged, {kills} kills, {lost} lost, {unreadable} unreadable states"
    );
    report.set("updates", written);
    report.set("kills", kills);
    report.set("lost_updates", lost);
    report.set("unreadable_states", unreadable);
    Ok(())
}

/// Adds tenants and, after every third one, a token for the shared tenant.
fn write(hosts: &TestHosts, host: &str, over: &AtomicBool) -> Result<Acknowledged> {
    let mut acknowledged = Acknowledged::default();
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{host}-{number}");
        if hosts.admin(host, &["tenant", "add", &name]).is_ok() {
            acknowledged.tenants.insert(name);
        }
        if number % 3 == 0 && acknowledged.tokens.len() < TOKENS {
            let given = hosts.admin(host, &["tenant", "rotate", SHARED]).ok();
            let token = given
                .as_ref()
                .and_then(|given| given.first()?.get("token")?.as_str());
            // frost_<tenant>_<id>_<secret>
            acknowledged.tokens.extend(
                token
                    .and_then(|token| token.rsplit('_').nth(1))
                    .map(str::to_owned),
            );
        }
    }
    Ok(acknowledged)
}

/// Starts and kills a host repeatedly. Returns the number of kills, and of starts that failed to read the
/// state.
fn kill_hosts(hosts: &TestHosts, over: &AtomicBool) -> (usize, usize) {
    let (mut kills, mut unreadable) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        match hosts.host("dies") {
            Ok(mut host) => {
                let until = Instant::now() + LIFE;
                while Instant::now() < until && !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                kills += usize::from(host.kill().is_ok());
            }
            Err(_) => unreadable += 1,
        }
    }
    (kills, unreadable)
}

fn joined(thread: std::thread::Result<Result<Acknowledged>>) -> Result<Acknowledged> {
    thread.unwrap_or_else(|_| bail!("an admin's thread panicked"))
}

/// Returns the strings under `key` in a list of objects.
fn strings(list: &[Value], key: &str) -> BTreeSet<String> {
    list.iter()
        .filter_map(|object| object.get(key)?.as_str().map(str::to_owned))
        .collect()
}
