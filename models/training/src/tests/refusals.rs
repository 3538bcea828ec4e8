//! Refusals of untrainable suffixes.

use super::harness::{Net, PLAIN};
use crate::TrainingGraph;
use frostline_graph::Model;
use frostline_graph::build::node;

fn refusal(model: &Model) -> String {
    TrainingGraph::build(model, 2, PLAIN).unwrap_err().to_string()
}

#[test]
fn an_operator_without_a_rule() {
    let net = Net::new(&[4])
        .probed(&[4])
        .node(node("Tan", &["h"], &["e"]))
        .classified("e", 4);
    let text = refusal(&net.model());
    assert!(
        text.contains("operator Tan (node 'e')") && text.contains("choose a freeze cut after it"),
        "{text}"
    );
}

#[test]
fn a_suffix_that_ends_in_probabilities() {
    let net = Net::new(&[4])
        .weight("w", &[4, 3])
        .op("MatMul", &["x", "w"], "m")
        .op("Softmax", &["m"], "logits");
    assert!(refusal(&net.model()).contains("replace its head"));
}

#[test]
fn a_suffix_without_weights() {
    let net = Net::new(&[4]).op("Relu", &["x"], "logits");
    assert!(refusal(&net.model()).contains("earlier freeze cut"));
}

#[test]
fn an_output_that_is_no_row_of_logits() {
    let net = Net::new(&[4, 2])
        .weight("w", &[2, 2])
        .op("MatMul", &["x", "w"], "logits");
    assert!(refusal(&net.model()).contains("[batch, classes]"));
}

#[test]
fn an_empty_batch() {
    let net = Net::new(&[4])
        .weight("w", &[4, 3])
        .op("MatMul", &["x", "w"], "logits");
    assert!(TrainingGraph::build(&net.model(), 0, PLAIN).is_err());
}
