//! Tenant that blocks lanes for a minute per row. It uses integer matrix products, for which ONNX Runtime has
//! no fast kernel. They do not check for interruption for seconds.

use crate::neighbor::{photos, upload_ref};
use crate::scene::{Scene, backbone};
use anyhow::Result;
use frostline_graph::Model;
use frostline_graph::build::{batched, int, integers, ints, model, node, tensor};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;
use frostline_trainer::Guest;
use frostline_wire::{Encoding, ExtractionRequest, RowFormat, Split, Terms};
use futures::future::join_all;

/// Name of the uploads.
const NAME: &str = "slow";

/// Number of matrix products per row. A product runs for seconds.
const PRODUCTS: usize = 10;

/// Number of concurrent extractions. It exceeds the number of lanes on most machines.
const AT_ONCE: usize = 8;

/// Uploads models that differ in a byte and runs them on all lanes, until dropped.
///
/// # Errors
/// Returns an error if the host refuses the model.
pub async fn keep_lanes(scene: &Scene) -> Result<()> {
    let client = scene.client()?;
    let guest = client.push_guest(NAME, Guest::stock().bytes).await?;
    let mut model = network()?;
    for number in 0_u64.. {
        model.set_metadata("number", &number.to_string());
        let pushed = client.push_model(NAME, model.to_bytes()?.into()).await?;
        let request = ExtractionRequest {
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
        };
        let extract = async || {
            // The host may end the extraction with any result.
            if let Ok(mut answer) = client
                .extract(&request, RowFormat::F32(vec![1, 1, 1]), 1 << 20)
                .await
            {
                while let Ok(Some(_)) = answer.next().await {}
            }
        };
        join_all((0..AT_ONCE).map(|_| extract())).await;
    }
    Ok(())
}

fn network() -> Result<Model> {
    let input = Model::from_bytes(backbone()?)?.network()?.input;
    let one = Tensor::i64([1], vec![1])?;
    let mut nodes = vec![
        node("ReduceMean", &[&input.name], &["mean"]).with([ints("axes", &[1, 2, 3])]),
        node("Expand", &["mean", "shape"], &["wide"]),
        node("Cast", &["wide"], &["p0"]).with([int("to", 7)]),
        node("ConstantOfShape", &["square"], &["ones"]).with([tensor("value", &one)]),
    ];
    for index in 0..PRODUCTS {
        let (from, to) = (format!("p{index}"), format!("p{}", index + 1));
        nodes.push(node("MatMul", &[&from, "ones"], &[&to]));
    }
    let last = format!("p{PRODUCTS}");
    nodes.push(node("Cast", &[&last], &["sums"]).with([int("to", 1)]));
    nodes.push(node("ReduceMean", &["sums"], &["slow"]).with([ints("axes", &[2, 3])]));
    nodes.push(node("Relu", &["slow"], &["y"]));
    let graph = GraphProto {
        name: NAME.into(),
        node: nodes,
        initializer: vec![
            integers("shape", &[1, 1, 2048, 2048]),
            integers("square", &[2048, 2048]),
        ],
        input: vec![batched(&input.name, input.shape.dims())],
        output: vec![batched("y", &[1, 1, 1])],
        ..GraphProto::default()
    };
    Ok(Model::from_proto(model(17, graph))?)
}
