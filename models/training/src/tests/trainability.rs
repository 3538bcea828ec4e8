//! `Trainability`, compared with building training graphs.

use super::harness::{Net, PLAIN};
use crate::{Trainability, TrainingGraph};
use frostline_graph::Model;
use frostline_tensor::DType;

/// Returns a network with two undifferentiable operators between weights.
fn barred() -> Model {
    Net::of(&[4], DType::F32)
        .weight("first", &[4, 4])
        .weight("second", &[4, 4])
        .weight("third", &[4, 4])
        .op("MatMul", &["x", "first"], "before")
        .op("Relu", &["before"], "relu")
        .op("Tan", &["relu"], "tan")
        .op("MatMul", &["tan", "second"], "between")
        .op("Tan", &["between"], "tan_2")
        .op("Relu", &["tan_2"], "free")
        .op("MatMul", &["free", "third"], "last")
        .classified("last", 4)
        .model()
}

#[test]
fn analysis_agrees_with_building_for_every_cut() {
    let model = barred();
    let trainability = Trainability::analyze(&model).unwrap();
    let network = model.network().unwrap();
    for cut in network.cuts.iter().filter(|cut| cut.before_head) {
        let suffix = model.slice(Some(&cut.name), None).unwrap();
        let built = TrainingGraph::build(&suffix, 2, PLAIN);
        let judged = trainability.obstacle(&cut.name);
        assert!(judged.is_some() || built.is_ok(), "{}: {judged:?}", cut.name);
    }
    assert!(trainability.obstacle("x").is_some());
    assert_eq!(trainability.obstacle("free").map(ToString::to_string), None);
    // The first weight after this cut is `third`, so the Tan before it does not need a gradient.
    assert!(trainability.obstacle("between").is_none());
    assert_eq!(trainability.earliest(&network).unwrap().name, "between");
    let named = trainability.obstacle("before").unwrap().to_string();
    assert!(named.contains("operator Tan (node 'tan_2')"), "{named}");
}

#[test]
fn a_network_of_known_operators_is_trained_from_its_input() {
    let net = Net::of(&[4], DType::F32)
        .weight("w", &[4, 4])
        .op("MatMul", &["x", "w"], "m")
        .op("Relu", &["m"], "r")
        .classified("r", 4);
    let model = net.model();
    let trainability = Trainability::analyze(&model).unwrap();
    assert!(trainability.obstacle("x").is_none());
    assert_eq!(
        trainability.earliest(&model.network().unwrap()).unwrap().name,
        "m"
    );
}
