//! What is said of cuts without building anything is what building says.

use super::harness::{Net, PLAIN};
use crate::{Trainability, TrainingGraph};
use frostline_graph::Model;
use frostline_tensor::DType;

/// An operator that is known and has no gradient, between two weights on either side.
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
fn every_cut_is_judged_as_building_judges_it() {
    let model = barred();
    let trainability = Trainability::analyze(&model).unwrap();
    let network = model.network().unwrap();
    for cut in network.cuts.iter().filter(|cut| cut.before_head) {
        let suffix = model.slice(Some(&cut.name), None).unwrap();
        let built = TrainingGraph::build(&suffix, 2, PLAIN);
        let judged = trainability.against(&cut.name);
        assert!(judged.is_some() || built.is_ok(), "{}: {judged:?}", cut.name);
    }
    assert!(trainability.against("x").is_some());
    assert_eq!(trainability.against("free").map(ToString::to_string), None);
    // Nothing behind it is trained before the second weight, so no gradient comes to the operator between.
    assert!(trainability.against("between").is_none());
    assert_eq!(trainability.earliest(&network).unwrap().name, "between");
    let named = trainability.against("before").unwrap().to_string();
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
    assert!(trainability.against("x").is_none());
    assert_eq!(
        trainability.earliest(&model.network().unwrap()).unwrap().name,
        "m"
    );
}
