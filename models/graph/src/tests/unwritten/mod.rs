//! Search for kernels that do not write the complete output. Every admitted operator is executed with random
//! shapes and attributes in two processes that fill memory differently on allocation and deallocation. Bytes
//! that differ were never written and would expose the data of another tenant.

mod draw;
mod movement;
mod recipes;

use crate::build::{batched, initializer, integers, model, node, value};
use crate::onnx::{GraphProto, data_type};
use crate::{Model, ModelLimits, operators};
use draw::{Case, Draw};
use frostline_engine::{Session, SessionOptions};
use frostline_tensor::Tensor;
use prost::Message;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

/// Cases per operator. Between a tenth and half of the cases are admitted and supported by ONNX Runtime.
const CASES: u64 = 96;

/// Operators that are not tested, with the reason.
const NOT_DRAWN: &[(&str, &str)] = &[
    (
        "Constant",
        "it has no input, and is stored when the session opens",
    ),
    (
        "Range",
        "it is only admitted with constants, and is stored when the session opens",
    ),
    (
        "Shape",
        "a network cannot consist of shapes; it is executed before ConstantOfShape",
    ),
    (
        "Size",
        "a network cannot consist of shapes; it writes a single number",
    ),
];

/// Name of the case with unwritten output.
const UNWRITTEN: &str = "unwritten";

/// Prefix of the lines that describe a case.
const MARK: &str = "case ";

/// Returns the model of a case, or `None` if it is not admitted.
fn admitted(case: &Case) -> Option<Vec<u8>> {
    let (rows, row) = case.input.split_first()?;
    let mut nodes = case.before.clone();
    let names: Vec<String> = (0..case.outputs).map(|index| format!("out{index}")).collect();
    let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
    let inputs: Vec<&str> = case.inputs.iter().map(String::as_str).collect();
    nodes.push(node(case.operator, &inputs, &outputs).with(case.attributes.clone()));
    let told = names.get(case.told)?;
    nodes.push(node("Cast", &[told], &["y"]).with([crate::build::int("to", 1)]));
    let graph = GraphProto {
        name: "drawn".into(),
        node: nodes,
        initializer: case.weights.clone(),
        input: vec![batched("x", row)],
        output: vec![value("y", data_type::FLOAT, &[])],
        ..GraphProto::default()
    };
    // The output can have any shape.
    let mut proto = model(case.opset, graph);
    let output = proto.graph.as_mut()?.output.first_mut()?;
    let tensor = output.r#type.as_mut()?.tensor_type.as_mut()?;
    tensor.shape = None;
    let bytes = proto.encode_to_vec();
    (*rows > 0 && Model::admit(bytes.clone().into(), &ModelLimits::default()).is_ok()).then_some(bytes)
}

/// Product over an axis of size 0, which admission refuses. It verifies that the search can find unwritten
/// output.
fn unwritten() -> Vec<u8> {
    let nodes = vec![
        node("Unsqueeze", &["x", "one"], &["batched"]),
        node("Slice", &["batched", "zero", "zero", "one"], &["none"]),
        node("MatMul", &["nothing", "none"], &["y"]),
    ];
    let nothing = Tensor::f32(vec![1, 0], vec![]).unwrap();
    let graph = GraphProto {
        name: UNWRITTEN.into(),
        node: nodes,
        initializer: vec![
            initializer("nothing", &nothing),
            integers("zero", &[0]),
            integers("one", &[1]),
        ],
        input: vec![batched("x", &[4])],
        output: vec![batched("y", &[1, 4])],
        ..GraphProto::default()
    };
    model(17, graph).encode_to_vec()
}

/// Returns a hash of the output for `x`, or `None` if the engine refuses the model.
fn ran(bytes: &[u8], x: &Tensor) -> Option<String> {
    let options = SessionOptions {
        threads: 1,
        arena: false,
        ..SessionOptions::default()
    };
    let mut session = Session::open(bytes, &options).ok()?;
    // The second execution reuses the memory of the first.
    let mut hash = Sha256::new();
    for _ in 0..2 {
        let outputs = session.run(&[("x", x)]).ok()?;
        let (_, y) = outputs.first()?;
        hash.update(format!("{:?}", y.shape().dims()));
        hash.update(y.as_bytes());
    }
    Some(hex::encode(hash.finalize()))
}

#[test]
#[ignore = "started by the search as a child process that fills memory"]
fn runs_what_is_drawn() {
    for operator in operators::admitted() {
        for number in 0..CASES {
            let Some(case) = recipes::draw(operator.name, Draw::new(operator, number)) else {
                continue;
            };
            // If the process crashes, the last printed case is the cause.
            println!("\n{MARK}{}#{number} begins {:?}", operator.name, case);
            let x = draw::numbers(case.seed, &case.input);
            if let Some(hash) = admitted(&case).and_then(|bytes| ran(&bytes, &x)) {
                println!("\n{MARK}{}#{number} made {hash}", operator.name);
            }
        }
    }
    let hash = ran(&unwritten(), &draw::numbers(0, &[2, 4])).unwrap();
    println!("\n{MARK}{UNWRITTEN} made {hash}");
    println!("\n{MARK}end");
}

/// Returns the hashes and the descriptions of all cases from a process that fills memory with `fill`.
fn made(fill: u8) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::unwritten::runs_what_is_drawn",
            "--ignored",
            "--nocapture",
        ])
        .env("GLIBC_TUNABLES", format!("glibc.malloc.perturb={fill}"))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(MARK)).collect();
    assert_eq!(
        lines.last(),
        Some(&"end"),
        "{}: the process ended in this case",
        output.status
    );
    let told = |word: &str| {
        let split = |line: &&str| {
            line.split_once(word)
                .map(|(case, what)| (case.to_owned(), what.to_owned()))
        };
        lines.iter().filter_map(split).collect()
    };
    (told(" made "), told(" begins "))
}

mod long {
    use super::*;

    #[test]
    fn no_admitted_operator_leaves_its_output_unwritten() {
        let (mut once, drawn) = made(0x2b);
        let (mut again, _) = made(0xd5);
        let known = [&mut once, &mut again].map(|made| made.remove(UNWRITTEN).unwrap());
        assert_ne!(known[0], known[1], "the search cannot find unwritten output");
        let differ: Vec<String> = once
            .iter()
            .filter(|(case, hash)| again.get(*case) != Some(hash))
            .map(|(case, _)| format!("{case} {}", drawn.get(case).map_or("", String::as_str)))
            .collect();
        let counts = once.keys().filter_map(|case| Some(case.split_once('#')?.0));
        let counts = counts.fold(BTreeMap::<&str, usize>::new(), |mut counts, operator| {
            *counts.entry(operator).or_default() += 1;
            counts
        });
        println!("cases run of each operator: {counts:?}");
        let tried: BTreeSet<&str> = counts
            .into_keys()
            .chain(NOT_DRAWN.iter().map(|(name, _)| *name))
            .collect();
        let missing: Vec<&str> = operators::admitted()
            .map(|operator| operator.name)
            .filter(|name| !tried.contains(name))
            .collect();
        assert!(differ.is_empty(), "unwritten: {differ:#?}");
        assert!(missing.is_empty(), "not tried: {missing:?}");
    }
}
