//! Two hosts on one state in S3, admins writing at both, one host killed again and again: is anything lost that was acknowledged, and
//! can the state always be read?

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

/// How long admins write.
const SPAN: Duration = Duration::from_secs(40);

/// How long a host lives until it is killed.
const LIFE: Duration = Duration::from_millis(1500);

/// The tenant both admins give tokens to at once.
const SHARED: &str = "shared";

/// Tokens a tenant may have: each admin makes so many of them.
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

    /// The objects of the answer: one, or one a line for lists.
    fn admin(&self, name: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        admin(&self.folder.join(name).join("local/admin.sock"), arguments)
    }
}

/// What was acknowledged.
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
        "two hosts on one state in S3: {written} updates acknowledged, {kills} kills, {lost} lost, {unreadable} unreadable states"
    );
    report.set("updates", written);
    report.set("kills", kills);
    report.set("lost_updates", lost);
    report.set("unreadable_states", unreadable);
    Ok(())
}

/// Adds tenants, and now and then a token to the tenant that is shared.
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

/// Starts a host and kills it, again and again; counts the kills, and the starts that found a state they could not read.
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

/// The texts under `key` in a list of objects.
fn strings(list: &[Value], key: &str) -> BTreeSet<String> {
    list.iter()
        .filter_map(|object| object.get(key)?.as_str().map(str::to_owned))
        .collect()
}
