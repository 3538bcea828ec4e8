//! A row that ends the process of its lane, in a run that tenants share.

use super::lane_process::place;
use super::setup::{Source, batch, one_lane, stage, start, wait_for};
use crate::{Lanes, TenantLanes};
use frostline_tensor::{GraphExecutor, OpError, RunTerms, Tensor, Terms};

/// A row that is divided by -1; of the least number the process dies.
fn row(value: i64) -> Tensor {
    Tensor::i64([1, 4], vec![value; 4]).unwrap()
}

fn sharing(lanes: &Lanes, tenant: &str) -> TenantLanes {
    let terms = Terms {
        shared_runs: true,
        ..Terms::default()
    };
    let extraction = tenant.into();
    lanes
        .for_tenant(tenant)
        .on_terms(1, RunTerms { extraction, terms })
}

/// What comes of a row of the neighbour's and of one of a `stranger`'s that wait for the same lane together.
async fn together(
    (source, lanes): (&Source, &Lanes),
    (stranger, value): (&str, i64),
) -> [Result<Tensor, OpError>; 2] {
    let (busy, rows);
    {
        let _gate = source.gate.lock().unwrap();
        // A stage that is not open yet, so that the lane waits for its network.
        busy = lanes.submit(&stage(&format!("gated-{stranger}")), batch(1, 1.0));
        wait_for(lanes, |stats| stats.running == 1);
        rows = [
            sharing(lanes, "neighbour").submit(&stage("divided"), row(10)),
            sharing(lanes, stranger).submit(&stage("divided"), row(value)),
        ];
    }
    busy.await.unwrap();
    let [own, theirs] = rows;
    [own.await, theirs.await]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisonous_row_in_a_shared_run_is_blamed_alone() {
    let (source, lanes) = start(one_lane(place()));
    let both = (&*source, &lanes);
    // Until the lane joins them: one that never does makes this wait for ever.
    for round in 0.. {
        let rows = together(both, (&format!("healthy-{round}"), 7)).await;
        assert_eq!(rows, [Ok(row(-10)), Ok(row(-7))]);
        if lanes.stats().runs_joined > 0 {
            break;
        }
    }
    for round in 0.. {
        let before = lanes.stats();
        let stranger = format!("poisonous-{round}");
        let [own, theirs] = together(both, (&stranger, i64::MIN)).await;
        assert_eq!(own, Ok(row(-10)), "the neighbour's row");
        let blamed = theirs.unwrap_err();
        assert!(
            blamed.message.contains("crashed the engine 2 times"),
            "alone: {blamed}"
        );
        let after = lanes.stats();
        assert_eq!(after.quarantines, before.quarantines + 1);
        let next = sharing(&lanes, "neighbour")
            .submit(&stage("divided"), row(3))
            .await;
        assert_eq!(next, Ok(row(-3)), "it is not put away for the neighbour");
        // Twice alone, and once with the neighbour's.
        if after.crashes == before.crashes + 3 {
            break;
        }
    }
}
