//! The second wall: access attempts by a lost lane, the delay when a lane switches to another tenant, and the
//! cost of walls for a host.

use crate::report::{Report, median};
use anyhow::Result;
use bytes::Bytes;
use frostline_engine::{ChildLanes, Isolation, Lanes, LanesConfig, LanesPlace, StageSource};
use frostline_graph::onnx::GraphProto;
use frostline_graph::{Model, build};
use frostline_isolation::{Neighbor, Scene, lost_lane, without_walls};
use frostline_tensor::{GraphExecutor, OpError, Precision, Stage, Tensor};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of engine batches with and without a switch between tenants.
const SWITCHES: usize = 40;

/// Duration and number of rate measurements, alternating with and without walls.
const SPAN: Duration = Duration::from_secs(4);
const TURNS: usize = 9;

pub(super) async fn run(report: &mut Report, binary: &Path) -> Result<()> {
    let player = std::env::current_exe()?;
    let walled = Scene::start(binary, &[]).await?;
    lost(report, &player, &walled)?;
    for (name, isolation) in [("shared", Isolation::Shared), ("tenant", Isolation::Tenant)] {
        let switch = switching(binary, isolation).await?;
        println!("with isolation {name}, switching tenants delays an engine batch by {switch:.2} ms");
        report.set(&format!("tenant_switch_ms_{name}"), switch);
    }
    let free = Scene::start_as(binary, without_walls(&player, binary), &[]).await?;
    cost(report, &walled, &free).await
}

fn lost(report: &mut Report, player: &Path, scene: &Scene) -> Result<()> {
    let tried = lost_lane(player, scene, true)?;
    for attempt in &tried {
        let came = attempt.denied.as_deref().unwrap_or("SUCCEEDED");
        println!("a lost lane tries to {:<34} {came}", attempt.what);
    }
    let denied = tried.iter().filter(|attempt| attempt.denied.is_some()).count();
    println!("denied attempts: {denied} of {}\n", tried.len());
    report.set("wall_tried", tried.len());
    report.set("wall_denied", denied);
    Ok(())
}

/// A network with a single operator, served for every stage.
struct One(Bytes);

impl StageSource for One {
    fn stage_model(&self, _: &Stage) -> Result<Bytes, OpError> {
        Ok(self.0.clone())
    }
}

/// Returns the median delay in milliseconds for an engine batch after a switch to another tenant.
async fn switching(binary: &Path, isolation: Isolation) -> Result<f64> {
    let graph = GraphProto {
        name: "one".to_owned(),
        node: vec![build::node("Relu", &["x"], &["y"])],
        input: vec![build::batched("x", &[4])],
        output: vec![build::batched("y", &[4])],
        ..GraphProto::default()
    };
    let network = Model::from_proto(build::model(17, graph))?.to_bytes()?;
    let config = LanesConfig {
        lanes: 1,
        place: LanesPlace::Child(ChildLanes {
            isolation,
            ..ChildLanes::new(binary, ["lanes"])
        }),
        ..LanesConfig::default()
    };
    let lanes = Lanes::start(config, Arc::new(One(network.into())))?;
    let stage = Stage {
        model: "one".to_owned(),
        from: "x".to_owned(),
        to: "y".to_owned(),
        pixels: None,
        precision: Precision::Full,
    };
    let (mut same, mut other) = (Vec::new(), Vec::new());
    for run in 0..2 * SWITCHES {
        let tenant = if run % 4 < 2 { "a" } else { "b" };
        let batch = Tensor::f32([1, 4], vec![1.0; 4])?;
        let started = Instant::now();
        lanes.for_tenant(tenant).submit(&stage, batch).await?;
        let taken = started.elapsed().as_secs_f64() * 1e3;
        if run % 2 == 0 { &mut other } else { &mut same }.push(taken);
    }
    // Ignore the initial batch: it opened the session.
    other.remove(0);
    Ok(median(&other) - median(&same))
}

/// Compares the neighbor's images per second on hosts with and without walls, in turns.
async fn cost(report: &mut Report, walled: &Scene, free: &Scene) -> Result<()> {
    let (walled, free) = (Neighbor::start(walled).await?, Neighbor::start(free).await?);
    let turns = if report.quick() { 3 } else { TURNS };
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let (with, without) = (walled.rate(SPAN).await?, free.rate(SPAN).await?);
        rates.push(with);
        ratios.push(with / without);
    }
    let ratio = median(&ratios);
    println!(
        "host with walls: {:.1} images/s, {ratio:.3} of the rate without walls (median of {turns}: {ratios:.3?})\n",
        median(&rates)
    );
    report.set("serve_ratio_walled", ratio);
    Ok(())
}
