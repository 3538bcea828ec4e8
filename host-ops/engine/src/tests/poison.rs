//! A row that crashes the process of its lane, in a batch with other rows of the same tenant.

use super::lane_process::place;
use super::setup::{Source, batch, one_lane, stage, start, wait_for};
use crate::Lanes;
use frostline_tensor::{GraphExecutor, OpError, Tensor};

/// A row for a network that divides by -1. The smallest integer crashes the process.
fn row(value: i64) -> Tensor {
    Tensor::i64([1, 4], vec![value; 4]).unwrap()
}

/// Submits a valid row and one of `value`, so that both wait for the same lane. Returns their outcomes.
async fn together(source: &Source, lanes: &Lanes, tenant: &str, value: i64) -> [Result<Tensor, OpError>; 2] {
    let (busy, rows);
    {
        let _gate = source.gate.lock().unwrap();
        // The stage has no session yet, so the lane waits for its network.
        busy = lanes.submit(&stage(&format!("gated-{tenant}")), batch(1, 1.0));
        wait_for(lanes, |stats| stats.running == 1);
        let submit = |value| lanes.for_tenant(tenant).submit(&stage("divided"), row(value));
        rows = [10, value].map(submit);
    }
    busy.await.unwrap();
    let [healthy, other] = rows;
    [healthy.await, other.await]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisonous_row_in_a_joined_run_is_blamed_alone() {
    let (source, lanes) = start(one_lane(place()));
    // Repeats until the lane joins the rows.
    for round in 0.. {
        let rows = together(&source, &lanes, &format!("healthy-{round}"), 7).await;
        assert_eq!(rows, [Ok(row(-10)), Ok(row(-7))]);
        if lanes.stats().runs_joined > 0 {
            break;
        }
    }
    for round in 0.. {
        let before = lanes.stats();
        let tenant = format!("poisonous-{round}");
        let [healthy, poisonous] = together(&source, &lanes, &tenant, i64::MIN).await;
        assert_eq!(healthy, Ok(row(-10)), "the valid row succeeds");
        let blamed = poisonous.unwrap_err();
        assert!(
            blamed.message.contains("crashed the engine 2 times"),
            "alone: {blamed}"
        );
        let after = lanes.stats();
        assert_eq!(after.quarantines, before.quarantines + 1);
        let neighbor = lanes.for_tenant("neighbor");
        let next = neighbor.submit(&stage("divided"), row(3)).await;
        assert_eq!(next, Ok(row(-3)), "not quarantined for other tenants");
        // Two crashes alone, and one together with the valid row.
        if after.crashes == before.crashes + 3 {
            break;
        }
    }
}
