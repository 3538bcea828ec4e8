//! Attempts to learn which networks a neighbor runs.

use crate::case::{Action, AttackKind, Case, CaseResult, Expected};
use crate::neighbor::{photos, upload_ref};
use crate::scene::{Scene, backbone};
use anyhow::{Result, ensure};
use frostline_graph::Model;
use frostline_trainer::Guest;
use frostline_wire::{Encoding, ExtractionRequest, RowFormat, Split, Terms, Values};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Name of the network that both tenants have.
const NAME: &str = "common";

/// Cut at which the neighbor runs it.
const CUT: &str = "features";

pub(crate) fn all() -> Vec<Case> {
    vec![Case {
        name: "neighbors-stages".to_owned(),
        description: "asks for the load of a network that the neighbor runs".to_owned(),
        class: AttackKind::Request,
        expected: Expected::new("load", &["0 stages"]),
        act: Action::Memory(|scene| Box::pin(neighbors_stages(scene))),
    }]
}

/// Uploads a network that the neighbor runs, and counts its stages in `/v1/load`.
async fn neighbors_stages(scene: &Scene) -> Result<CaseResult> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    // A network that no tenant has run before.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut model = Model::from_bytes(backbone()?)?;
    model.set_metadata("common", &format!("{} {number}", scene.name()));
    let shape = model.network()?.cut(CUT)?.shape.dims().to_vec();
    let bytes = model.to_bytes()?;
    let neighbor = scene.neighbor();
    let client = neighbor.client()?;
    let guest = client.push_guest(NAME, Guest::stock().bytes).await?;
    let pushed = client.push_model(NAME, bytes.clone().into()).await?;
    let request = ExtractionRequest {
        root: neighbor.root()?,
        split: Split::Cut(CUT.to_owned()),
        guest: Some(upload_ref(NAME, &guest.sha256)),
        model: Some(upload_ref(NAME, &pushed.sha256)),
        parameters: String::new(),
        encoding: Encoding::F32,
        terms: Terms::default(),
        view: None,
        samples: photos(&neighbor, 1),
        digests: false,
    };
    let mut answer = client
        .extract(&request, RowFormat::Tensor(Values::F32, shape), 64 << 20)
        .await?;
    while answer.next().await?.is_some() {}
    let stages = async |client: &frostline_client::HostClient| {
        let load = client.load().await?;
        let of_model = load.stages.iter().filter(|stage| stage.model == pushed.sha256);
        anyhow::Ok(of_model.count())
    };
    ensure!(
        stages(&client).await? > 0,
        "the neighbor does not see its own stage"
    );
    let hostile = scene.client()?;
    hostile.push_model(NAME, bytes.into()).await?;
    let seen = stages(&hostile).await?;
    Ok(CaseResult::new("load", format!("{seen} stages")))
}
