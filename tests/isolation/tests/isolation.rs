//! Runs every case while the neighbor extracts.

// Helpers outside `#[test]` functions count as production code to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use frostline_e2e::frostline_binary;
use frostline_isolation::{
    BUDGET, Case, MixtureSettings, Neighbor, Scene, Watch, behavior_cases, cases, memory_cases, mixture,
    row_cases, unread_cases,
};
use std::time::Duration;
use tokio::sync::watch;

/// Duration of the mixture in this test.
const MIXTURE: Duration = Duration::from_secs(30);

/// Time within which hosts must release everything in tests. A loaded machine needs longer than the 15 s that
/// the benchmark allows, during which running engine batches end and idle threads exit.
const GRACE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn every_case_is_contained() {
    all_contained(&cases()).await;
}

mod needs_guests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_compiled_guest_is_contained() {
        all_contained(&frostline_isolation::compiled_guests()).await;
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn work_whose_client_leaves_is_contained() {
        all_contained_with(&frostline_isolation::slow_cases(), &["--lanes", "1"]).await;
    }
}

async fn all_contained(cases: &[Case]) {
    all_contained_with(cases, &[]).await;
}

async fn all_contained_with(cases: &[Case], arguments: &[&str]) {
    let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
    let scene = Scene::start(&binary, arguments).await.unwrap();
    let neighbor = Neighbor::start(&scene).await.unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let (stop, stopped) = watch::channel(false);
        let (ended, beside) = tokio::join!(run(case, &scene, stop), neighbor.work(stopped));
        wrong.extend(ended.err());
        wrong.extend(beside.err().map(|error| neighbor_failure(case, &error)));
    }
    assert_none_failed(&wrong, cases.len());
    assert_eq!(scene.panics().unwrap(), 0, "{}", scene.log().unwrap());
    let top = scene.admin(&["top", "--once"]).unwrap();
    let running = top.get("running").and_then(serde_json::Value::as_u64);
    assert_eq!(running, Some(0), "no extraction may continue");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leak_is_detected() {
    let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
    let scene = Scene::start(&binary, &[]).await.unwrap();
    let neighbor = Neighbor::start(&scene).await.unwrap();
    assert_eq!(scene.take_leaks().unwrap().len(), 0);
    neighbor.leak(&scene).await.unwrap();
    let seen = scene.take_leaks().unwrap();
    for secret in ["Key", "Photo", "Activation"] {
        let mut whose = seen.keys();
        let found = whose.any(|what| what.starts_with(&format!("{secret} of neighbor seen by Tenant")));
        assert!(found, "{secret}: {seen:#?}");
    }
    assert_eq!(seen.len(), 3, "{seen:#?}");
}

/// Runs cases and floods concurrently. The benchmark `isolation` does this for ten minutes and also measures
/// the neighbor's rate.
async fn none_is_harmed_by_a_mixture_of(cases: &[Case]) {
    let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
    let settings = MixtureSettings {
        span: MIXTURE,
        grace: GRACE,
        slow_kernels: false,
    };
    let mixed = mixture(&binary, cases, settings).await.unwrap();
    println!("{mixed:?}");
    assert!(mixed.leaks.is_empty(), "{:#?}", mixed.leaks);
    assert_eq!(mixed.left_over, Vec::<String>::new());
    assert_eq!((mixed.panics, mixed.over_budget), (0, 0));
    assert!(mixed.completed > 0 && mixed.neighbor_began > 0);
    assert!(
        mixed.neighbor_failures.is_empty(),
        "{:#?}",
        mixed.neighbor_failures
    );
}

async fn within_budget(cases: &[Case]) {
    let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
    let scene = Scene::start_within(&binary, BUDGET).await.unwrap();
    let neighbor = Neighbor::start(&scene).await.unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let (stop, stopped) = watch::channel(false);
        let (ended, beside, seen) = tokio::join!(
            run(case, &scene, stop),
            neighbor.work(stopped.clone()),
            Watch::run(&scene, stopped)
        );
        let seen = seen.unwrap();
        println!(
            "{}: held {} MiB, anonymous {:?} MiB",
            case.name,
            seen.held >> 20,
            seen.anonymous.map(|bytes| bytes >> 20)
        );
        wrong.extend(ended.err());
        wrong.extend(beside.err().map(|error| neighbor_failure(case, &error)));
        if seen.held > BUDGET || seen.anonymous.is_none_or(|bytes| bytes > BUDGET) {
            wrong.push(format!(
                "{}: {seen:?} exceeds the budget of {BUDGET} bytes",
                case.name
            ));
        }
    }
    assert_none_failed(&wrong, cases.len());
    assert_eq!(scene.panics().unwrap(), 0, "{}", scene.log().unwrap());
}

/// Runs a case, stops the concurrent tasks, and describes an unexpected result.
async fn run(case: &Case, scene: &Scene, stop: watch::Sender<bool>) -> Result<(), String> {
    let seen = case.run(scene).await;
    // Fails if the concurrent tasks have already failed.
    let _ = stop.send(true);
    let name = &case.name;
    match seen {
        Ok(seen) if case.is_expected(&seen) => Ok(()),
        Ok(seen) => Err(format!("{name}: got {:?}, expected {:?}", seen, case.expected)),
        Err(error) => Err(format!("{name}: {error:#}")),
    }
}

fn neighbor_failure(case: &Case, error: &dyn std::fmt::Display) -> String {
    format!("{}: neighbor: {error:#}", case.name)
}

fn assert_none_failed(wrong: &[String], cases: usize) {
    assert!(
        wrong.is_empty(),
        "{} of {cases} cases failed:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

mod needs_unshare {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_host_serves_without_proc() {
        let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
        let scene = Scene::start_without_proc(&binary).await.unwrap();
        let neighbor = Neighbor::start(&scene).await.unwrap();
        let (_, stop) = watch::channel(true);
        neighbor.work(stop).await.unwrap();
        let top = scene.admin(&["top", "--once"]).unwrap();
        // 80 % of the memory that a host assumes if the system does not report it.
        assert_eq!(top["memory"]["budget"], (4_u64 << 30) / 5 * 4, "{top}");
        let log = scene.log().unwrap();
        assert!(
            log.contains("/proc is not available") && log.contains("mount /proc"),
            "{log}"
        );
    }
}

mod needs_walls {
    use super::*;
    use frostline_isolation::{FORGED, LOGGED, lost_lane, lost_lane_logs, without_walls};
    use std::path::Path;

    const PLAYER: &str = env!("CARGO_BIN_EXE_frostline-played");

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lost_lane_reaches_nothing() {
        let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
        let scene = Scene::start(&binary, &["--require-walls"]).await.unwrap();
        let tried = lost_lane(Path::new(PLAYER), &scene, true).unwrap();
        for attempt in &tried {
            println!("{:<34} {:?}", attempt.what, attempt.denied);
        }
        let succeeded: Vec<_> = tried.iter().filter(|tried| tried.denied.is_none()).collect();
        assert!(succeeded.is_empty(), "{succeeded:?}");
    }

    #[test]
    fn a_lost_lane_cannot_change_the_log() {
        let logs = lost_lane_logs(Path::new(PLAYER)).unwrap();
        for attacked in &logs {
            println!("{}:\n{}", attacked.what, attacked.log);
            let mut lines = attacked.log.lines();
            assert_eq!(lines.next(), Some(LOGGED), "{}", attacked.what);
            assert!(lines.all(|line| !line.starts_with(FORGED)), "{}", attacked.what);
            assert!(!attacked.log.contains(['\r', '\x1b']), "{}", attacked.what);
        }
        let output = format!("output=\"{FORGED} {FORGED}\"");
        assert!(logs.iter().any(|attacked| attacked.log.contains(&output)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn missing_walls_are_reported_and_refused_if_required() {
        let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
        let player = Path::new(PLAYER);
        let scene = Scene::start_as(&binary, without_walls(player, &binary), &[])
            .await
            .unwrap();
        let log = scene.log().unwrap();
        assert!(
            log.contains("Landlock, seccomp") && log.contains("require_walls"),
            "{log}"
        );
        Neighbor::start(&scene).await.unwrap();
        let command = without_walls(player, &binary);
        let refused = Scene::start_as(&binary, command, &["--require-walls"]).await;
        let error = refused.err().unwrap();
        assert!(
            format!("{error:#}").contains("the host exited before listening"),
            "{error:#}"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_thread_of_a_lane_is_behind_its_walls() {
        let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
        let scene = Scene::start(&binary, &["--require-walls"]).await.unwrap();
        let neighbor = Neighbor::start(&scene).await.unwrap();
        let (_, stop) = watch::channel(true);
        neighbor.work(stop).await.unwrap();
        let lanes = scene.children("lanes").unwrap();
        assert!(!lanes.is_empty());
        for lane in lanes {
            let tasks = std::fs::read_dir(format!("/proc/{lane}/task")).unwrap();
            for task in tasks {
                let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
                assert!(
                    status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"),
                    "{status}"
                );
            }
        }
        assert_private(&scene.folder().join("state"));
    }

    /// Asserts that only the host's user has access to a path and everything below it.
    fn assert_private(path: &Path) {
        let metadata = std::fs::symlink_metadata(path).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        if metadata.is_dir() {
            let entries = std::fs::read_dir(path).unwrap();
            entries.for_each(|entry| assert_private(&entry.unwrap().path()));
        }
    }

    /// Attempts that fail even without walls, because the processes hide from all users except root.
    const DENIED_WITHOUT_WALLS: [&str; 6] = [
        "read the host's environment",
        "open the host's memory",
        "read another lane's window",
        "take the host's descriptor",
        "trace the host",
        "change the root",
    ];

    #[tokio::test(flavor = "multi_thread")]
    async fn attempts_of_a_lost_lane_succeed_without_walls() {
        let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
        let scene = Scene::start(&binary, &[]).await.unwrap();
        let mut tried = lost_lane(Path::new(PLAYER), &scene, false).unwrap();
        tried.retain(|tried| tried.denied.is_some() && !DENIED_WITHOUT_WALLS.contains(&tried.what));
        assert!(tried.is_empty(), "{tried:?}");
    }
}

mod needs_proc {
    use super::*;
    use futures::future::join_all;

    mod needs_guests {
        use super::*;

        #[tokio::test(flavor = "multi_thread")]
        async fn a_mixture_harms_nobody() {
            let compiled = frostline_isolation::compiled_guests();
            let all = [
                cases(),
                compiled,
                memory_cases(),
                row_cases(),
                unread_cases(),
                behavior_cases(),
            ]
            .concat();
            none_is_harmed_by_a_mixture_of(&all).await;
        }
    }

    /// Runs all conducts on a route at once, one route after another.
    #[tokio::test(flavor = "multi_thread")]
    async fn no_behavior_on_a_route_leaves_anything() {
        let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
        let scene = Scene::start_within(&binary, BUDGET).await.unwrap();
        let neighbor = Neighbor::start(&scene).await.unwrap();
        let idle = scene.footprint().unwrap();
        let (stop, stopped) = watch::channel(false);
        let acting = async {
            let wrong = each_route(&scene).await;
            let _ = stop.send(true);
            wrong
        };
        let (wrong, beside, seen) = tokio::join!(
            acting,
            neighbor.work_with_retries(stopped.clone()),
            Watch::run(&scene, stopped.clone())
        );
        drop(neighbor);
        let unowned = seen.unwrap().beyond(&idle);
        // Memory and reservations are read one after the other, so this is a figure of `bench isolation`.
        println!("anonymous memory of no owner: {} MiB", unowned >> 20);
        assert_none_failed(&wrong, behavior_cases().len());
        println!("retries of the neighbor: {}", beside.unwrap());
        let left = scene.left_over(&idle, GRACE).await.unwrap();
        assert_eq!(left, Vec::<String>::new());
        assert_eq!(scene.panics().unwrap(), 0, "{}", scene.log().unwrap());
    }

    /// Runs all conducts on each route, and describes unexpected results.
    async fn each_route(scene: &Scene) -> Vec<String> {
        let mut wrong = Vec::new();
        let cases = behavior_cases();
        for of_route in cases.chunks(cases.len() / frostline_isolation::routes()) {
            println!("{} and others", of_route.first().unwrap().description);
            let results = join_all(of_route.iter().map(|case| case.run(scene))).await;
            for (case, seen) in of_route.iter().zip(results) {
                if !seen.as_ref().is_ok_and(|seen| case.is_expected(seen)) {
                    wrong.push(format!("{}: {seen:?}", case.name));
                }
            }
        }
        wrong
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_case_exceeds_the_memory_budget() {
        within_budget(&memory_cases()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unread_answers_are_reserved() {
        for case in unread_cases() {
            within_budget(&[case]).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_row_exceeds_the_memory_budget() {
        within_budget(&row_cases()).await;
    }
}
