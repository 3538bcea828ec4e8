//! Networks whose weights or values are stored in unusual ways, and files that are not networks.

use super::case::Case;
use std::collections::HashMap;
use std::fs;

/// Largest difference of the accuracy to the control's, in percent. Half precision rounds the features.
const TOLERANCE: f64 = 4.0;

/// Files that cannot be trained, with a part of the error.
const REFUSED: &[(&str, &str)] = &[
    ("empty.onnx", "empty file"),
    ("half.onnx", "truncated or damaged"),
    ("html.onnx", "an HTML page"),
    ("text.onnx", "run `git lfs pull`"),
    ("weights.pt", "a PyTorch checkpoint"),
    ("ir99.onnx", "supports up to 13"),
    ("opset99.onnx", "supports up to 25"),
    ("qop.onnx", "use the network before its quantization"),
    ("qdyn.onnx", "use the network before its quantization"),
    ("qdq.onnx", "did you mean `features_DequantizeLinear_Output`"),
    ("double.onnx", "model.float()"),
    ("fp16.onnx", "model.float()"),
];

/// Runs `check.sh` for all files. Returns the text printed for each, by file name without
/// the extension `.onnx`.
fn check(case: &Case) -> HashMap<String, String> {
    let ran = case.bash("check.sh", &[]);
    let mut found: HashMap<String, String> = HashMap::new();
    let mut name = String::new();
    for line in ran.stdout.lines() {
        let begins = line
            .split_once(" rc=")
            .filter(|(first, _)| !first.starts_with(' '));
        if let Some((first, _)) = begins {
            name = first.trim().to_owned();
        }
        found.entry(name.clone()).or_default().push_str(line);
    }
    found
}

fn is_trained(text: &str) -> bool {
    text.contains("rc=0")
}

fn accuracy(text: &str) -> f64 {
    let number = text
        .split_once("accuracy ")
        .and_then(|(_, rest)| rest.split_once('%'));
    let number = number.and_then(|(number, _)| number.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no accuracy: {text}"))
}

/// Checks that all trained variants reach the accuracy of the control. Returns the number of variants.
fn check_accuracy(mut found: HashMap<String, String>) -> usize {
    let control = accuracy(&found.remove("control").unwrap());
    found.retain(|_, text| is_trained(text));
    for (name, text) in &found {
        assert!((accuracy(text) - control).abs() < TOLERANCE, "{name}: {text}");
    }
    found.len()
}

#[test]
fn the_gradient_passes_casts_and_quantization() {
    let ran = Case::copy("jobs").python("cast_gradient.py", &[]);
    let lines = ran.stdout.lines().filter(|line| line.contains("untrained:"));
    let untrained: Vec<&str> = lines.collect();
    assert_eq!(untrained.len(), 5, "{ran:?}");
    assert!(
        untrained.iter().all(|line| line.contains("untrained: none")),
        "{untrained:?}"
    );
}

#[test]
fn casts_to_bfloat16_train_as_the_control_and_layers_in_bfloat16_are_refused() {
    let case = Case::copy("jobs");
    let script = "\
import common as c, numpy as np, sys
from onnx import TensorProto as T, helper as h
name, middle = sys.argv[1], sys.argv[2:]
made, extra, value = [], [], 'r'
for operator in middle:
    to = {'to': T.BFLOAT16 if value == 'r' else T.FLOAT} if operator == 'Cast' else {}
    made.append(h.make_node(operator, [value] + ['half'] * (operator == 'MatMul'), ['v' + value], **to)); value = 'v' + value
made.append(h.make_node('Identity', [value], ['m']))
if 'MatMul' in middle: extra.append(h.make_tensor('half', T.BFLOAT16, [32, 32], np.eye(32).ravel().tolist()))
c.net(name + '.onnx', lambda: (made, extra))
flags = ['--validation', '.25', '--freeze', 'none', '--epochs', 2, '--batch', 6, '--lr', '.05', '--threads', 1, '--feature-cache', 'off', *c.PIXELS]
run = c.run('train', '--model', name + '.onnx', '--data', c.images('data'), '--out', name + '-tuned.onnx', *flags, ok=False)
sys.stderr.write(run.stderr)
if run.returncode: sys.exit(1)
before, after, control = (c.weights(file) for file in (name + '.onnx', name + '-tuned.onnx', 'plain-tuned.onnx'))
print('moved', min(np.abs(after[k] - before[k]).max() for k in ('wa', 'wb')), 'off', max(np.abs(after[k] - control[k]).max() for k in ('wa', 'wb')))
";
    fs::write(case.path("bf16.py"), script).unwrap();
    let numbers = |network: &[&str]| -> (f64, f64) {
        let ran = case.python("bf16.py", network);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let words: Vec<&str> = ran.stdout.split_whitespace().collect();
        let [.., "moved", moved, "off", off] = words.as_slice() else {
            panic!("{ran:?}");
        };
        (moved.parse().unwrap(), off.parse().unwrap())
    };
    let (moved, _) = numbers(&["plain"]);
    let (with_casts, off) = numbers(&["casts", "Cast", "Cast"]);
    assert!(
        with_casts > moved / 2.0 && off < moved / 10.0,
        "{moved}, {with_casts}, {off}"
    );
    let refused = case.python("bf16.py", &["product", "Cast", "MatMul", "Cast"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in ["computes in bfloat16", "model.float()"] {
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    assert!(!refused.stderr.contains("epoch "), "{refused:?}");
}

#[test]
fn stored_weights_are_trained() {
    let ran = Case::copy("jobs").python("stored_weights.py", &[]);
    let lines = ran.stdout.lines().filter(|line| line.contains("unchanged: ["));
    let found: Vec<_> = lines.filter_map(|line| line.split_once("] changed: ")).collect();
    assert_eq!(found.len(), 2, "{ran:?}");
    for (unchanged, changed) in found {
        assert!(unchanged.ends_with("unchanged: ['wa'"), "{unchanged}");
        // Integers become floating-point numbers under the name that the convolution reads.
        let weight = if unchanged.starts_with("f16") {
            "'wq'"
        } else {
            "'wb'"
        };
        assert!(changed.contains(weight), "{changed}");
    }
}

#[test]
fn the_tuned_model_of_an_old_network_is_valid() {
    let ran = Case::copy("jobs").python("ir3_checker.py", &[]);
    assert!(ran.stdout.contains("checker: fine"), "{ran:?}");
    assert!(
        ran.stdout.contains("onnxruntime takes it, inputs ['x']"),
        "{ran:?}"
    );
}

mod long {
    use super::*;

    #[test]
    fn every_variant_trains_as_the_control_or_is_refused_in_plain_words() {
        let case = Case::generate("20-model-kinds");
        let found = check(&case);
        for (file, part) in REFUSED {
            let text = found.get(file.trim_end_matches(".onnx")).unwrap();
            assert!(text.contains("rc=1") && text.contains(part), "{file}: {text}");
        }
        for name in ["fp16_keep_io", "weights_cast"] {
            assert!(is_trained(&found[name]), "{name}: {}", found[name]);
        }
        for (name, text) in found.iter().filter(|(_, text)| !is_trained(text)) {
            assert!(text.contains("error: "), "{name}: {text}");
            for word in ["panicked", "rotobuf", "onnxruntime", "ORT"] {
                assert!(!text.contains(word), "{name}: {text}");
            }
        }
        assert!(check_accuracy(found) > 15);
    }
}
