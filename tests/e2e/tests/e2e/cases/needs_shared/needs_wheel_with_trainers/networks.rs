//! Networks from other programs: their outputs and the preprocessing that they expect.

use super::case::Case;
use frostline_e2e::Finished;
use serde_json::Value;

fn assert_done(run: &Finished) {
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn recipes_of_processors_are_those_of_the_libraries() {
    let ran = Case::copy("jobs").python("hf_processors.py", &[]);
    assert_done(&ran);
    let recipe = |name: &str| -> Value {
        let mut lines = ran.stdout.lines();
        let line = lines.find(|line| line.split(' ').next() == Some(name)).unwrap();
        let event = line.get(line.find('{').unwrap_or_default()..).unwrap();
        let event: Value = serde_json::from_str(event).unwrap_or_else(|error| panic!("{error}: {line}"));
        event["recipe"].clone()
    };
    let vit = recipe("slow");
    assert_eq!(vit["resize_mode"], "squash");
    assert_eq!(recipe("fast"), vit);
    assert_eq!(recipe("fast-extra"), vit);
    let std = recipe("efficientnet")["std"][0].as_f64().unwrap();
    assert!((std - 0.47853944 * 0.47853944).abs() < 1e-6, "{std}");
    for short in ["levit", "levit-new", "timm-without-crop_pct"] {
        let recipe = recipe(short);
        assert_eq!(
            (&recipe["resize"], &recipe["crop_height"]),
            (&256.into(), &224.into()),
            "{short}"
        );
        assert_eq!(recipe["resize_mode"], Value::Null, "{short}");
    }
}

#[test]
fn a_network_that_normalizes_its_input_gets_raw_pixels() {
    let case = Case::generate("13-network-rescales");
    let accuracy = |flags: &[&str]| {
        let ran = case.frostline(&[&["eval", "--data", "data"], flags].concat());
        assert_done(&ran);
        assert!(ran.stdout.contains("100.0 %"), "{flags:?}: {ran:?}");
        ran.stderr
    };
    accuracy(&["--model", "plain.onnx"]);
    let said = accuracy(&["--model", "rescales.onnx"]);
    assert!(
        said.contains("raw pixels, because the network normalizes its input"),
        "{said}"
    );
    let raw = ["--mean", "0,0,0", "--std", "0.00392157,0.00392157,0.00392157"];
    let said = accuracy(&[&["--model", "rescales.onnx"], &raw[..]].concat());
    assert!(!said.contains("expects raw pixels"), "{said}");
    let twice = ["--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225"];
    let ran = case.frostline(
        &[
            &["eval", "--data", "data", "--model", "rescales.onnx"],
            &twice[..],
        ]
        .concat(),
    );
    assert_done(&ran);
    assert!(ran.stderr.contains("the network expects raw pixels"), "{ran:?}");
    // Both networks learn the same from the same pixels.
    let tuned = |model: &str| {
        let train = format!("train --model {model} --data data --freeze features --epochs 3 --out t.onnx");
        assert_done(&case.frostline(&train.split(' ').collect::<Vec<_>>()));
        let evaluated = case.frostline(&["eval", "--data", "data", "--model", "t.onnx"]);
        assert_done(&evaluated);
        evaluated.stdout
    };
    assert_eq!(tuned("rescales.onnx"), tuned("plain.onnx"));
}

#[test]
fn an_output_is_chosen_and_open_axes_are_set_in_every_command() {
    let case = Case::generate("18-two-outputs");
    let run = |line: &str| case.frostline(&line.split(' ').collect::<Vec<_>>());
    let refused = run("model show backbone.onnx");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("last_hidden_state, pooler_output"),
        "{refused:?}"
    );
    let shown = run("model show backbone.onnx --image-size 64 --output last_hidden_state");
    assert_done(&shown);
    let chosen = "--model backbone.onnx --image-size 64 --output pooler_output";
    assert_done(&run(&format!(
        "train {chosen} --head linear --data data --epochs 2 --out t.onnx"
    )));
    // The tuned model has one output and a fixed size.
    for command in ["eval --data data", "predict data/validation"] {
        assert_done(&run(&format!("{command} --model t.onnx")));
    }
    let embeddings = run(&format!("eval {chosen} --data data"));
    assert!(
        embeddings.stderr.contains("24 outputs but 3 classes"),
        "{embeddings:?}"
    );
    assert_done(&run(&format!("predict {chosen} data/validation")));
    assert_done(&run(&format!(
        "extract {chosen} --cut output --data data --out f.parquet"
    )));
    // The cut names the output as well.
    let cut = "extract --model backbone.onnx --image-size 64 --cut pooler_output --data data --out g.parquet";
    assert_done(&run(cut));
    assert!(case.path("f.parquet").exists() && case.path("g.parquet").exists());
}
