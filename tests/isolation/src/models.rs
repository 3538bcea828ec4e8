//! Models that a host must refuse.

use crate::case::{Action, AttackKind, Case, CaseResult, Expected};
use crate::scene::Scene;
use anyhow::Result;
use frostline_hostile::HostileModel;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Case> {
    frostline_hostile::models().into_iter().map(case).collect()
}

fn case(model: HostileModel) -> Case {
    Case {
        name: model.name.to_owned(),
        description: "is uploaded as a model".to_owned(),
        class: AttackKind::Model,
        expected: Expected::new("400", model.expected_fragments),
        act: Action::Model(Arc::new(model)),
    }
}

pub(crate) async fn run(scene: &Scene, model: &HostileModel) -> Result<CaseResult> {
    let client = scene.client()?;
    match client.push_model("model", model.file.clone().into()).await {
        Ok(uploaded) => Ok(CaseResult::new(200, uploaded.sha256)),
        Err(error) => Ok(CaseResult::refused(&error)),
    }
}
