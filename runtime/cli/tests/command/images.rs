//! Tests `frostline predict` and `frostline eval`.

use super::outputs::Scene;
use super::{backbone, frostline, repository};
use serde_json::Value;
use std::path::Path;

/// Writes the demo network with names for the outputs.
pub(super) fn named_network(folder: &Path) -> String {
    let mut model = frostline_graph::Model::read(backbone()).unwrap();
    let outputs = model.network().unwrap().output.shape.dims()[0];
    let names: Vec<String> = (0..outputs).map(|number| format!("kind {number}")).collect();
    model.set_metadata("frostline.classes", &serde_json::to_string(&names).unwrap());
    let file = folder.join("named.onnx");
    model.write(&file).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn images_are_predicted_without_a_host_and_a_broken_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    std::fs::create_dir(&photos).unwrap();
    for (number, name) in ["b.jpg", "a.jpg"].into_iter().enumerate() {
        let photo = repository(&format!("models/zoo/demo/photos/train/cat/0{number}.jpg"));
        std::fs::copy(photo, photos.join(name)).unwrap();
    }
    let path = photos.to_str().unwrap();
    let predict =
        |model: &str, flags: &[&str]| frostline(&[&["predict", "--model", model, path][..], flags].concat());
    let lines = |bytes: &[u8]| -> Vec<String> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines().map(str::to_owned).collect()
    };

    let said = predict(&backbone(), &["--top", "2"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let said = lines(&said.stdout);
    assert_eq!(said.len(), 2);
    for (line, name) in said.iter().zip(["a.jpg", "b.jpg"]) {
        assert!(line.starts_with(&format!("{path}/{name}: output ")), "{line}");
        assert_eq!(line.matches(" %").count(), 2, "{line}");
    }

    std::fs::write(photos.join("aa.jpg"), b"no image").unwrap();
    let said = predict(&named_network(folder.path()), &["--json", "nowhere.png"]);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let objects = |bytes: &[u8]| -> Vec<Value> {
        let object = |line: &String| serde_json::from_str(line).unwrap();
        lines(bytes).iter().map(object).collect()
    };
    let answers = objects(&said.stdout);
    let errors = objects(&said.stderr);
    assert_eq!(answers.len(), 2);
    let classes = answers[0]["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 5);
    assert!(
        classes[0]["class"].as_str().unwrap().starts_with("kind "),
        "{classes:?}"
    );
    let chances: Vec<f64> = classes
        .iter()
        .map(|class| class["probability"].as_f64().unwrap())
        .collect();
    assert!(chances.is_sorted_by(|left, right| left >= right) && chances.iter().sum::<f64>() <= 1.0 + 1e-6);
    assert_eq!(errors[0]["path"], format!("{path}/aa.jpg"));
    assert!(
        errors[0]["error"].as_str().unwrap().contains("not a JPEG"),
        "{errors:?}"
    );
    assert_eq!(errors[1]["path"], "nowhere.png");
    assert_eq!(errors[2]["code"], 1);
    assert!(
        errors[2]["error"].as_str().unwrap().contains("2 of 4"),
        "{errors:?}"
    );
}

#[test]
fn an_evaluation_prints_tables_and_writes_its_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let model = named_network(folder.path());
    let photos = folder.path().join("photos");
    let mut images = 0;
    // The classes have names of the network's outputs, but the network was not trained on these photos, so
    // most predictions are wrong.
    for (class, of) in [("kind 0", "cat"), ("kind 7", "stars")] {
        std::fs::create_dir_all(photos.join(class)).unwrap();
        for number in 0..2 {
            let photo = repository(&format!("models/zoo/demo/photos/train/{of}/0{number}.jpg"));
            std::fs::copy(photo, photos.join(class).join(format!("{number}, a.jpg"))).unwrap();
            images += 1;
        }
    }
    let photos = photos.to_str().unwrap();
    let table = folder.path().join("predictions.csv");
    let eval =
        |flags: &[&str]| frostline(&[&["eval", "--model", &model, "--data", photos][..], flags].concat());

    let said = eval(&["--json", "--predictions", table.to_str().unwrap()]);
    assert!(said.status.success(), "{said:?}");
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["samples"], images);
    assert_eq!(said["classes"][7]["support"], 2);
    let cells = said["confusion"].as_array().unwrap();
    let count: u64 = cells.iter().map(|cell| cell["count"].as_u64().unwrap()).sum();
    assert_eq!(count, images);
    let table = std::fs::read_to_string(table).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "key,label,predicted,probability,rank");
    assert!(
        lines[1].starts_with("\"kind 0/0, a.jpg\",kind 0,kind "),
        "{table}"
    );
    assert_eq!(lines.len() as u64, 1 + images);

    let shown = eval(&[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.starts_with("accuracy ") && shown.contains(", top-5 "),
        "{shown}"
    );
    assert!(
        shown.contains("PRECISION") && shown.contains("most confused"),
        "{shown}"
    );
    // Both commands predict the same classes.
    let first = said["confusion"][0]["predicted"].as_u64().unwrap();
    let of_first = frostline(&["predict", "--json", "--top", "1", "--model", &model, photos]);
    let of_first = String::from_utf8(of_first.stdout).unwrap();
    let taken: Vec<String> = of_first
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["classes"][0]["class"].to_string())
        .collect();
    assert_eq!(taken.len() as u64, images);
    assert!(taken.contains(&format!("\"kind {first}\"")), "{taken:?}");

    let refused = eval(&["--predictions", "/nowhere/predictions.csv"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("/nowhere/predictions.csv"), "{error}");
}

#[test]
fn preprocessing_and_its_source_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let model = named_network(folder.path());
    let data = folder.path().join("data");
    for (class, photo) in [("kind 0", "cat/00.jpg"), ("kind 1", "brick/00.jpg")] {
        std::fs::create_dir_all(data.join(class)).unwrap();
        let photo = repository(&format!("models/zoo/demo/photos/train/{photo}"));
        std::fs::copy(photo, data.join(class).join("0.jpg")).unwrap();
    }
    std::fs::write(data.join("notes.txt"), b"no image").unwrap();
    let data = data.to_str().unwrap();
    let out = folder.path().join("x.parquet");
    let inputs = ["--model", &model, "--data", data];
    let eval = [&["eval"][..], &inputs].concat();
    let out = ["--cut", "features", "--out", out.to_str().unwrap()];
    let extract = [&["extract"][..], &inputs, &out].concat();
    for words in [&eval, &extract] {
        let said = frostline(words);
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{words:?}: {text}");
        assert!(
            text.contains("pixels     short side 144") && text.contains("(from the model)"),
            "{text}"
        );
        assert!(text.contains("notes.txt"), "{text}");
        let said = frostline(&[words, &["--json", "--mean", "0.5,0.5,0.5"][..]].concat());
        let text = String::from_utf8_lossy(&said.stderr);
        let events = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let pixels: Vec<Value> = events.filter(|event| event["event"] == "pixels").collect();
        assert_eq!(pixels.len(), 1, "{text}");
        assert_eq!(
            (&pixels[0]["source"], &pixels[0]["recipe"]["mean"][0]),
            (&"flags".into(), &0.5.into())
        );
    }
    let both = frostline(&[&extract, &["--mean", "0,0,0", "--parameters", "{}"][..]].concat());
    let text = String::from_utf8_lossy(&both.stderr);
    assert!(
        !both.status.success() && text.contains("try again without --parameters"),
        "{text}"
    );
}

#[test]
fn the_number_of_pixels_is_limited_by_a_flag() {
    let scene = Scene::new();
    // Images are decoded by the job itself, by the host in its process, and without a host.
    for words in [
        "train --model {folder}/small.onnx --data {folder}/photos --epochs 1 --runs {folder}/runs --split none --out {out} --feature-cache off",
        "train --model {folder}/small.onnx --data {folder}/photos --epochs 1 --runs {folder}/runs --split input --out {out} --feature-cache off",
        "eval --model {folder}/small.onnx --data {folder}/photos",
        "extract --model {folder}/small.onnx --data {folder}/photos --cut features --out {folder}/x.arrow --feature-cache off",
        "predict --model {folder}/small.onnx {folder}/photos/train",
    ] {
        // The photos have 192 x 192 pixels.
        let with_limit = |pixels: u64| {
            let words = format!("{words} --image-pixels {pixels} --json");
            scene.run(&words, &scene.path("tuned.onnx"))
        };
        let refused = with_limit(192 * 192 - 1);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{words}: {text}");
        assert!(
            text.contains("192x192 pixels exceeds the limit of 36863 pixels; reduce its size, or raise the limit `image_pixels`"),
            "{words}: {text}"
        );
        let accepted = with_limit(192 * 192);
        assert!(accepted.status.success(), "{words}: {accepted:?}");
    }
}
