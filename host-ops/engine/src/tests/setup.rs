//! Lanes over tiny networks.

use super::networks::{
    deep, divided, folded, hungry, matrices, pixels, relu, slow, squared, swollen, unwritten, wide,
};
use crate::{LaneStats, Lanes, LanesConfig, LanesPlace, StageSource, TenantLanes};
use bytes::Bytes;
use frostline_tensor::{DType, ExecutionTerms, OpError, Precision, Shape, Stage, Tensor, Terms};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Provides tiny networks by the name of the model, and counts the requests.
#[derive(Default)]
pub(super) struct Source {
    pub(super) asked: AtomicUsize,
    pub(super) gate: Mutex<()>,
}

impl StageSource for Source {
    fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        (stage.model == "misshapen").then(|| (DType::F32, Shape::new([5])))
    }

    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match stage.model.as_str() {
            "panics" => panic!("no good"),
            gated if gated.starts_with("gated") => drop(self.gate.lock()),
            "slow" => return Ok(slow(256, 400).into()),
            "endless" => return Ok(slow(256, 4000).into()),
            "pixels" => return Ok(pixels().into()),
            "deep" => return Ok(deep(20_000).into()),
            "divided" => return Ok(divided().into()),
            "folded" => return Ok(folded().into()),
            "hungry" => return Ok(hungry().into()),
            "wide" => return Ok(wide().into()),
            "matrices" => return Ok(matrices().into()),
            "unwritten" => return Ok(unwritten().into()),
            "squared" => return Ok(squared().into()),
            // 32 MiB per row, and 1 GiB.
            "swollen" => return Ok(swollen(1 << 20).into()),
            "bloated" => return Ok(swollen(32 << 20).into()),
            "broken" => return Ok(Bytes::from_static(b"no model")),
            "missing" => return Err(OpError::not_found("unknown model")),
            _ => {}
        }
        Ok(relu(4).into())
    }
}

pub(super) fn start(config: LanesConfig) -> (Arc<Source>, Lanes) {
    let source = Arc::new(Source::default());
    let lanes = Lanes::start(config, Arc::clone(&source) as Arc<dyn StageSource>).unwrap();
    (source, lanes)
}

pub(super) fn one_lane(place: LanesPlace) -> LanesConfig {
    LanesConfig {
        lanes: 1,
        place,
        ..LanesConfig::default()
    }
}

/// Returns the lanes with terms that run batches of exactly `rows`.
pub(super) fn in_runs_of(lanes: &Lanes, rows: usize) -> TenantLanes {
    in_runs_for("", lanes, rows)
}

/// Like [`in_runs_of`] for `tenant`.
pub(super) fn in_runs_for(tenant: &str, lanes: &Lanes, rows: usize) -> TenantLanes {
    let terms = Terms {
        fixed_batch: Some(rows),
        ..Terms::default()
    };
    let terms = ExecutionTerms {
        terms,
        ..ExecutionTerms::default()
    };
    lanes.for_tenant(tenant).on_terms(1, terms)
}

pub(super) fn stage(model: &str) -> Stage {
    Stage {
        model: model.to_owned(),
        from: "x".to_owned(),
        to: "y".to_owned(),
        pixels: None,
        precision: Precision::Full,
    }
}

pub(super) fn batch(rows: usize, value: f32) -> Tensor {
    Tensor::f32([rows, 4], vec![value; rows * 4]).unwrap()
}

pub(super) fn large() -> Tensor {
    Tensor::f32([256, 256], vec![1.0; 256 * 256]).unwrap()
}

pub(super) fn wait_for(lanes: &Lanes, condition: impl Fn(&LaneStats) -> bool) -> LaneStats {
    loop {
        let stats = lanes.stats();
        if condition(&stats) {
            return stats;
        }
        std::thread::yield_now();
    }
}
