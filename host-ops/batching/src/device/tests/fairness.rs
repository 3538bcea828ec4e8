//! Tests of fair scheduling.

use super::super::*;
use super::world::{MILLI, Truth, World};
use crate::shares::Shares;
use frostline_tensor::Terms;
use proptest::prelude::*;

/// Minimum number of waiting rows per tenant.
const BACKLOG: usize = 64;

/// Executes work of tenants with separate stages and a constant backlog until the time `until`. Returns the
/// device time per tenant.
fn share(lanes: usize, tenants: &[(u32, Truth)], until: Duration) -> (World, Vec<Duration>) {
    let truths: Vec<Truth> = tenants.iter().map(|(_, truth)| *truth).collect();
    let mut world = World::new(DeviceRules::for_lanes(lanes), 1 << 40, truths);
    while world.now < until {
        for (index, (weight, _)) in tenants.iter().enumerate() {
            let name = format!("t{index}");
            let stage = world.device.stages.find(&index);
            if stage.is_none_or(|stage| stage.waiting < BACKLOG) {
                world.send(&name, *weight, index, 16, Terms::default());
            }
        }
        world.step();
    }
    let used = (0..tenants.len()).map(|index| world.used[&format!("t{index}")]);
    let used = used.collect();
    (world, used)
}

fn millis(each: u32) -> Truth {
    Truth {
        time_per_row: MILLI * each,
        ..Truth::default()
    }
}

#[test]
fn weights_divide_the_time_within_5_percent() {
    let tenants = [(1, millis(10)), (2, millis(70)), (4, millis(33))];
    let (_, used) = share(1, &tenants, Duration::from_secs(600));
    let all: Duration = used.iter().sum();
    for ((weight, _), used) in tenants.iter().zip(&used) {
        let share = used.as_secs_f64() / all.as_secs_f64() * 7.0 / f64::from(*weight);
        assert!((share - 1.0).abs() < 0.05, "{weight}: {share}");
    }
}

/// A competitor without work for a moment after each batch does not lose any credit.
#[test]
fn moments_without_work_lose_no_share() {
    let mut shares = Shares::default();
    shares.ready(&"a", 0, 4);
    shares.ready(&"b", 0, 1);
    let mut runs = 0;
    for _ in 0..500 {
        let who = *shares.iter().next().unwrap();
        shares.start_turn(&who, MILLI * 10);
        shares.unready(&who);
        shares.end(&who, MILLI * 10, MILLI * 10);
        shares.ready(&who, 0, if who == "a" { 4 } else { 1 });
        runs += usize::from(who == "a");
    }
    assert!(runs.abs_diff(400) <= 2, "{runs}");
}

#[test]
fn a_weight_of_none_counts_as_one() {
    let (_, used) = share(1, &[(0, millis(10)), (1, millis(10))], Duration::from_secs(100));
    let ratio = used[0].as_secs_f64() / used[1].as_secs_f64();
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
}

#[test]
fn jobs_of_a_tenant_share_its_time() {
    let mut shares = Shares::default();
    for name in ["a", "b"] {
        shares.ready(&name, 0, 1);
    }
    let mut used = std::collections::HashMap::<&str, u32>::new();
    for _ in 0..300 {
        let who = *shares.iter().next().unwrap();
        let time = if who == "a" { 1 } else { 3 };
        shares.start_turn(&who, MILLI);
        shares.end(&who, MILLI, MILLI * time);
        *used.entry(who).or_default() += time;
    }
    assert!(used["a"].abs_diff(used["b"]) <= 3, "{used:?}");
}

/// Returns the order in which work items of 16 rows from `jobs` execute if they were sent at the same time.
fn order_of_runs(jobs: [&str; 3]) -> Vec<u64> {
    let mut world = World::new(DeviceRules::for_lanes(1), 1 << 40, vec![millis(100)]);
    for job in jobs {
        world.send(job, 1, 0, 16, Terms::default());
    }
    world.finish();
    let parts = world.runs.iter().flat_map(|run| &run.parts);
    let mut works: Vec<u64> = parts.map(|part| part.work).collect();
    assert!(
        works.len() > 2 * jobs.len(),
        "expected several batches per work item: {works:?}"
    );
    works.dedup();
    works
}

#[test]
fn what_a_job_asked_for_first_is_done_first() {
    assert_eq!(order_of_runs(["t/job"; 3]), [0, 1, 2]);
    let two = order_of_runs(["t/one", "t/one", "t/other"]);
    let place = |work: u64| two.iter().position(|other| *other == work);
    assert!(place(2) < place(1), "jobs take turns: {two:?}");
}

#[test]
fn ranks_come_first_and_who_wants_nothing_is_forgotten() {
    let mut shares = Shares::default();
    shares.ready(&"low", 0, 1);
    shares.ready(&"high", 1, 1);
    shares.start_turn(&"high", MILLI * 100);
    assert_eq!(shares.iter().collect::<Vec<_>>(), [&"high", &"low"]);
    shares.unready(&"high");
    shares.unready(&"low");
    assert_eq!(shares.active().count(), 1, "one runs");
    shares.end(&"high", MILLI * 100, MILLI);
    assert_eq!(shares.active().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// For any number of lanes and any backlog, within two time slices until all lanes have opened all
    /// sessions.
    #[test]
    fn weights_divide_the_time_of_all_lanes(
        tenants in prop::collection::vec((1..8_u32, 5..200_u32), 2..6),
        lanes in 1..4_usize,
    ) {
        let tenants: Vec<(u32, Truth)> = tenants.into_iter().map(|(weight, each)| (weight, millis(each))).collect();
        let (_, used) = share(lanes, &tenants, Duration::from_secs(60));
        let (all, weights): (Duration, u32) = (used.iter().sum(), tenants.iter().map(|(weight, _)| weight).sum());
        let slack = TIME_SLICE * 2;
        for ((weight, _), used) in tenants.iter().zip(used) {
            let due = all.mul_f64(f64::from(*weight) / f64::from(weights));
            prop_assert!(used.abs_diff(due) <= due.mul_f64(0.05) + slack, "{weight}: used {used:?}, expected {due:?}");
        }
    }

    /// With waiting work, the time between two batches of tenant i is limited to the previous batch, another
    /// batch in flight, and (w_j / w_i + 1) time slices per other tenant j, divided by the number of lanes.
    /// Tenant j goes first while it has used less time per weight, and can exceed this level by one batch.
    #[test]
    fn a_backlogged_tenant_waits_no_longer_than_promised(
        tenants in prop::collection::vec((1..8_u32, 1..400_u32), 2..6),
        lanes in 1..4_usize,
    ) {
        let tenants: Vec<(u32, Truth)> = tenants.into_iter().map(|(weight, each)| (weight, millis(each))).collect();
        let (world, _) = share(lanes, &tenants, Duration::from_secs(60));
        let time_slice = TIME_SLICE;
        // Durations of batches are still being measured before this time.
        let learnt = Duration::from_secs(20);
        for (index, (weight, _)) in tenants.iter().enumerate() {
            let others = tenants.iter().enumerate().filter(|(other, _)| *other != index);
            let others: f64 = others.map(|(_, (other, _))| f64::from(*other) / f64::from(*weight) + 1.0).sum();
            let bound = time_slice.mul_f64(2.0 + others / lanes as f64);
            let name = format!("t{index}");
            let begun: Vec<Duration> = world.begun.iter().filter(|(_, tenant)| *tenant == name).map(|(at, _)| *at).collect();
            for pair in begun.windows(2).filter(|pair| pair[0] > learnt) {
                prop_assert!(pair[1] - pair[0] <= bound, "{name}: waited {:?}, limit {bound:?}", pair[1] - pair[0]);
            }
        }
    }
}

mod long {
    use super::*;

    /// Stages keep their lanes, but the tenants on a busy lane do not fall behind.
    #[test]
    fn lanes_that_differ_in_load_lose_no_share() {
        let tenants = [(1, millis(1)), (2, millis(3)), (4, millis(2))];
        let (_, used) = share(2, &tenants, Duration::from_secs(60));
        let all: Duration = used.iter().sum();
        for ((weight, _), used) in tenants.iter().zip(&used) {
            let share = used.as_secs_f64() / all.as_secs_f64() * 7.0 / f64::from(*weight);
            assert!((share - 1.0).abs() < 0.05, "{weight}: {share}");
        }
    }
}
