//! Tenant that blocks lanes for seconds per row. It uses integer matrix products, for which ONNX Runtime has
//! no fast kernel. They do not check for interruption for seconds.

use crate::case::{Action, AttackKind, Case, CaseResult, Expected};
use crate::memory::wait_until_released;
use crate::neighbor::{photos, upload_ref};
use crate::scene::{Scene, backbone};
use anyhow::Result;
use frostline_client::{ClientError, HostClient};
use frostline_graph::Model;
use frostline_graph::build::{batched, int, integers, ints, model, node, tensor};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;
use frostline_trainer::Guest;
use frostline_wire::{Encoding, ExtractionRequest, RowFormat, Split, Terms, Values};
use futures::future::join_all;
use std::time::Duration;

/// Name of the uploads.
const NAME: &str = "slow";

/// Number of concurrent extractions. It exceeds the number of lanes on most machines.
const AT_ONCE: usize = 8;

/// Time after which a client leaves: less than a tenant may keep others waiting.
const STAY: Duration = Duration::from_secs(4);

/// Maximum number of attempts. The host should refuse the tenant after a few of them.
const ATTEMPTS: usize = 30;

/// Returns the cases with clients that leave slow work. They need [`Scene::start`] with a single lane, so
/// that the neighbor always waits for the same lane.
pub fn slow_cases() -> Vec<Case> {
    vec![
        // The other case ends with a pause of the tenant.
        case(
            "left-preparations",
            "requests networks that are prepared slowly, and leaves after 4 seconds",
            Expected::new("left", &[]),
            Action::Memory(|scene| Box::pin(leave_preparations(scene))),
        ),
        case(
            "left-kernels",
            "runs slow kernels and leaves after 4 seconds, again and again",
            Expected::new("500", &["refuses your batches"]),
            Action::Memory(|scene| Box::pin(leave_kernels(scene))),
        ),
    ]
}

fn case(name: &str, does: &str, expected: Expected, act: Action) -> Case {
    Case {
        name: name.to_owned(),
        description: does.to_owned(),
        class: AttackKind::Model,
        expected,
        act,
    }
}

/// Waits for a row, so that the network is prepared, and then leaves until the host refuses the tenant.
async fn leave_kernels(scene: &Scene) -> Result<CaseResult> {
    let client = scene.client()?;
    let request = request(scene, &client, &network()?).await?;
    // The row may be ended because the neighbor waits.
    drop(extract(&client, &request).await);
    for _ in 0..ATTEMPTS {
        if let Ok(Err(error)) = tokio::time::timeout(STAY, extract(&client, &request)).await {
            return Ok(CaseResult::refused(&error));
        }
    }
    Ok(CaseResult::new("left", ""))
}

async fn leave_preparations(scene: &Scene) -> Result<CaseResult> {
    let client = scene.client()?;
    let mut model = network()?;
    for number in 0..3 {
        model.set_metadata("number", &number.to_string());
        let request = request(scene, &client, &model).await?;
        drop(tokio::time::timeout(STAY, extract(&client, &request)).await);
    }
    wait_until_released(scene).await?;
    Ok(CaseResult::new("left", ""))
}

/// Uploads models that differ in a byte and runs them on all lanes, until dropped.
///
/// # Errors
/// Returns an error if the host refuses the model.
pub async fn keep_lanes(scene: &Scene) -> Result<()> {
    let client = scene.client()?;
    let mut model = network()?;
    for number in 0_u64.. {
        model.set_metadata("number", &number.to_string());
        let request = request(scene, &client, &model).await?;
        // The host may end the extractions with any result.
        join_all((0..AT_ONCE).map(|_| extract(&client, &request))).await;
    }
    Ok(())
}

/// Uploads the model and returns a request for a row.
async fn request(scene: &Scene, client: &HostClient, model: &Model) -> Result<ExtractionRequest> {
    let guest = client.push_guest(NAME, Guest::stock().bytes).await?;
    let pushed = client.push_model(NAME, model.to_bytes()?.into()).await?;
    Ok(ExtractionRequest {
        root: scene.root()?,
        split: Split::Cut("slow".to_owned()),
        guest: Some(upload_ref(NAME, &guest.sha256)),
        model: Some(upload_ref(NAME, &pushed.sha256)),
        parameters: String::new(),
        encoding: Encoding::F32,
        terms: Terms::default(),
        view: None,
        samples: photos(scene, 1),
        digests: false,
    })
}

async fn extract(client: &HostClient, request: &ExtractionRequest) -> Result<(), ClientError> {
    let format = RowFormat::Tensor(Values::F32, vec![1, 1, 1]);
    let mut answer = client.extract(request, format, 1 << 20).await?;
    while answer.next().await?.is_some() {}
    Ok(())
}

/// Returns a network with a product of 17 billion multiply-adds per row, which runs for seconds. Admission
/// allows three times as much.
fn network() -> Result<Model> {
    let input = Model::from_bytes(backbone()?)?.network()?.input;
    let one = Tensor::i64([1], vec![1])?;
    let nodes = vec![
        node("ReduceMean", &[&input.name], &["mean"]).with([ints("axes", &[1, 2, 3])]),
        node("Expand", &["mean", "shape"], &["wide"]),
        node("Cast", &["wide"], &["integers"]).with([int("to", 7)]),
        node("ConstantOfShape", &["factor"], &["ones"]).with([tensor("value", &one)]),
        node("MatMul", &["integers", "ones"], &["product"]),
        node("Cast", &["product"], &["sums"]).with([int("to", 1)]),
        node("ReduceMean", &["sums"], &["slow"]).with([ints("axes", &[2, 3])]),
        node("Relu", &["slow"], &["y"]),
    ];
    let graph = GraphProto {
        name: NAME.into(),
        node: nodes,
        initializer: vec![
            integers("shape", &[1, 1, 2048, 4096]),
            integers("factor", &[4096, 2048]),
        ],
        input: vec![batched(&input.name, input.shape.dims())],
        output: vec![batched("y", &[1, 1, 1])],
        ..GraphProto::default()
    };
    Ok(Model::from_proto(model(17, graph))?)
}
