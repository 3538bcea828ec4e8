//! Names of cuts, and the first cut that a host refuses.

use super::support::noisy;
use crate::build::{batched, initializer, int, model, node};
use crate::onnx::{GraphProto, NodeProto, StringStringEntry};
use crate::{GraphError, Model, ModelLimits, Network};

/// A stem, a sequence of two blocks and a classifier. The columns are operator, input, output and module.
const NODES: [(&str, &str, &str, &str); 6] = [
    ("Relu", "x", "relu", "stem"),
    ("Relu", "relu", "relu_1", "body/body.0/relu"),
    ("Sigmoid", "relu_1", "sigmoid", "body/body.0/gate"),
    ("Relu", "sigmoid", "relu_2", "body/body.1/relu"),
    ("Neg", "relu_2", "neg", ""),
    ("Gemm", "neg", "logits", "fc"),
];

fn network(named: impl Fn(NodeProto, &str) -> NodeProto) -> Model {
    let one = |(operator, input, output, module): (&str, &str, &str, &str)| {
        let node = match operator {
            "Gemm" => node(operator, &[input, "w"], &[output]),
            _ => node(operator, &[input], &[output]),
        };
        named(node, module)
    };
    let graph = GraphProto {
        node: NODES.map(one).into(),
        initializer: vec![initializer("w", &noisy(1, &[4, 3]))],
        input: vec![batched("x", &[4])],
        output: vec![batched("logits", &[3])],
        ..GraphProto::default()
    };
    Model::from_proto(model(17, graph)).unwrap()
}

/// Names nodes like torch's older exporter.
fn older() -> Network {
    let named = |node: NodeProto, module: &str| {
        let separator = if module.is_empty() { "" } else { "/" };
        let name = format!("/{module}{separator}{}", node.op_type);
        node.named(&name)
    };
    network(named).network().unwrap()
}

/// Adds notes about modules like torch's newer exporter.
fn newer() -> Network {
    let noted = |mut node: NodeProto, module: &str| {
        let mut scopes = vec!["''".to_owned()];
        let parts: Vec<&str> = module.split('/').collect();
        for (depth, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let path = if depth < 2 {
                (*part).to_owned()
            } else {
                format!("{}.{part}", parts[1])
            };
            scopes.push(format!("'{path}'"));
        }
        scopes.push(format!("'{}'", node.output[0]));
        node.metadata_props.push(StringStringEntry {
            key: "pkg.torch.onnx.name_scopes".into(),
            value: format!("[{}]", scopes.join(", ")),
        });
        node
    };
    network(noted).network().unwrap()
}

#[test]
fn a_cut_is_called_by_the_modules_whose_output_it_is() {
    for network in [older(), newer()] {
        let modules: Vec<&[String]> = network.cuts.iter().map(|cut| cut.modules.as_slice()).collect();
        let expected: [&[&str]; 6] = [
            &["stem"],
            &["body.0.relu"],
            &["body.0", "body.0.gate"],
            &["body", "body.1", "body.1.relu"],
            &[],
            &["fc"],
        ];
        assert_eq!(modules, expected);
        let titles: Vec<&str> = network.cuts.iter().map(|cut| network.title(cut)).collect();
        assert_eq!(titles, ["stem", "body.0.relu", "body.0", "body", "neg", "fc"]);
    }
}

#[test]
fn a_cut_is_found_by_tensor_by_module_and_by_what_holds_it_alone() {
    for network in [older(), newer()] {
        for (name, tensor) in [
            ("sigmoid", "sigmoid"),
            ("body.0", "sigmoid"),
            ("body", "relu_2"),
            ("body.1", "relu_2"),
            ("body.1.relu", "relu_2"),
            ("neg", "neg"),
        ] {
            assert_eq!(network.named(name).unwrap().name, tensor, "{name}");
        }
        let unknown = network.named("body.2").unwrap_err();
        assert!(matches!(unknown, GraphError::UnknownCut { .. }), "{unknown}");
        assert!(
            unknown.to_string().contains("did you mean `body`, `body.0`"),
            "{unknown}"
        );
    }
}

#[test]
fn a_name_of_several_cuts_says_which() {
    let mut network = older();
    for cut in &mut network.cuts {
        // The output of the sequence is not a cut, so only nested modules match.
        cut.modules.retain(|module| module != "body" && module != "stem");
    }
    let several = network.named("body").unwrap_err();
    assert!(matches!(several, GraphError::AmbiguousCut { .. }), "{several}");
    let text = several.to_string();
    assert!(
        text.contains("`body.0.relu`, `body.0.gate`, `body.1.relu`"),
        "{text}"
    );
    let alone = network.named("body.1").unwrap();
    assert_eq!(alone.name, "relu_2");
}

#[test]
fn layers_are_refused_from_the_first_cut_behind_what_hosts_do_not_take() {
    let limits = ModelLimits::default();
    let mut model = network(|node, _| node);
    let cuts = model.network().unwrap().cuts;
    assert!(model.first_refused_cut(&cuts, &limits).is_none());
    let mut graph = model.graph().clone();
    graph.node[3].attribute.push(int("strange", 1));
    let second = graph.node[3].attribute[0].clone();
    graph.node[3].attribute.push(second);
    model = model.with_graph(graph).unwrap();
    let refused = model.first_refused_cut(&cuts, &limits).unwrap();
    assert_eq!(cuts[refused.first].name, "relu_2");
    assert!(refused.why.to_string().contains("strange"), "{}", refused.why);
}
