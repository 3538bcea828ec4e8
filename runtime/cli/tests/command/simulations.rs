//! Tests simulated plans.

use super::{failure, frostline};
use serde_json::Value;

/// Two splits of a job. The split at the cut is faster with 8 Mbit/s, and the split none is faster with 8
/// Gbit/s.
const MEASURED: &str = r#"{"link_bytes_per_second":1e6,"batch":10,"iterations":8,"candidates":[
    {"split":"none","host_seconds":0.1,"trainer_seconds":1,"bytes":9e6},
    {"split":"features","host_seconds":1.5,"trainer_seconds":0.5,"bytes":1e6}]}"#;

#[test]
fn a_simulation_takes_every_flag_or_refuses_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    std::fs::write(&file, MEASURED).unwrap();
    let plan = |flags: &[&str]| {
        frostline(&[&["plan", "--json", "--simulate", file.to_str().unwrap()], flags].concat())
    };
    let split = |flags: &[&str]| {
        let planned = plan(flags);
        let object: Value = serde_json::from_slice(&planned.stdout).unwrap_or_else(|_| panic!("{planned:?}"));
        object["split"].as_str().unwrap().to_owned()
    };
    assert_eq!(split(&[]), "features");
    assert_eq!(split(&["--link-bytes-per-second", "1e9"]), "none");
    assert_eq!(split(&["--candidates", "none"]), "none");
    for both in ["none,features", "features; none"] {
        assert_eq!(split(&["--candidates", both]), "features");
    }
    for flags in [
        &["--batch", "64"][..],
        &["--epochs", "2"],
        &["--encoding", "f16"],
        &["--freeze", "features"],
        &["--hflip", "0.5"],
        &["--validation", "0.2"],
        &["--layout", "objects"],
        &["--device", "cpu"],
        &["--threads", "2"],
        &["--link-bytes-per-second", "0"],
    ] {
        let refused = plan(flags);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {refused:?}");
        assert!(failure(&refused)["error"].as_str().unwrap().contains(flags[0]));
    }
    for (flags, meant) in [
        (["--policy", "hapi-sise"], "did you mean hapi-size"),
        (["--candidates", "Features"], "did you mean features"),
        (["--candidates", "none;layer2,layer3"], "layer2,layer3"),
    ] {
        let mistyped = plan(&flags);
        assert_eq!(mistyped.status.code(), Some(1));
        let said = failure(&mistyped);
        assert!(said["error"].as_str().unwrap().contains(meant), "{said}");
    }
    let figure = folder.path().join("links.svg");
    assert_eq!(split(&["--plot", figure.to_str().unwrap()]), "features");
    let figure = std::fs::read_to_string(figure).unwrap();
    assert!(figure.contains("best split: features") && figure.contains("best split: none"));
    let alone = plan(&["--candidates", "features", "--plot", "unused.svg"]);
    assert!(failure(&alone)["error"].as_str().unwrap().contains("'none'"));
    assert_eq!(
        plan(&["--candidates", "features", "--policy", "hapi-size"])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn a_simulation_minimizes_the_cost_at_given_prices() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    std::fs::write(&file, MEASURED).unwrap();
    let file = file.to_str().unwrap();
    let plan = |flags: &[&str]| frostline(&[&["plan", "--simulate", file], flags].concat());
    let priced = |objective, prices| plan(&["--json", "--objective", objective, "--prices", prices]);
    let object = |output: &std::process::Output| -> Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let time = object(&plan(&["--json"]));
    assert_eq!(time["split"], "features");
    assert_eq!(time["first_epoch"]["host_core_seconds"], 12.0);
    assert_eq!(time["first_epoch"]["bytes"], 8e6);
    assert_eq!(time["candidates"][0]["job"]["bytes"], 72e6);
    assert!(time["job"].get("cost").is_none());
    // A core-hour of the host is so expensive that the cost of the prefix exceeds the cost of a longer job.
    let cost = object(&priced("cost", "host=36,trainer=0.36,gb=0.09"));
    assert_eq!(cost["split"], "none");
    assert_eq!(cost["shortest"]["split"], "features");
    let total = |job: &Value| job["cost"]["total"].as_f64().unwrap();
    assert!(total(&cost["job"]) < total(&cost["shortest"]["job"]));
    assert_eq!(object(&priced("time", "host=36"))["split"], "features");
    let text = plan(&["--objective", "cost", "--prices", "host=36,trainer=0.36,gb=0.09"]);
    let text = String::from_utf8_lossy(&text.stdout);
    for told in [
        "the job costs 0.0218 (host 0.00800, trainer 0.00731, link 0.00648) and takes 73.10 s",
        ". The objective time would use 'features' as f32: 0.122 in 13.50 s",
        "EPOCH S  HOST CORE-S  TRAINER CORE-S  TRAFFIC  JOB S  JOB COST",
        "the first epoch: ",
        "the job: ",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let refused = plan(&["--json", "--objective", "cost"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = failure(&refused);
    assert!(
        said["error"].as_str().unwrap().contains("prices above 0"),
        "{said}"
    );
    assert!(
        said["hint"].as_str().unwrap().contains("--prices host="),
        "{said}"
    );
    for (prices, said) in [
        ("egress=1", "unknown price 'egress'"),
        ("gb=-1", "the price of 'gb' is -1"),
    ] {
        let refused = plan(&["--json", "--prices", prices]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(failure(&refused)["error"].as_str().unwrap().contains(said));
    }
}

#[test]
fn a_simulation_tells_what_epochs_from_kept_rows_take() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    let reused = MEASURED.replacen(
        r#""iterations":8,"#,
        r#""iterations":80,"epoch_iterations":8,"reuse":{"bytes":1200000000},"#,
        1,
    );
    std::fs::write(&file, reused).unwrap();
    let file = file.to_str().unwrap();
    let text = frostline(&["plan", "--simulate", file]);
    let text = String::from_utf8_lossy(&text.stdout);
    // The file contains no step duration, so the smallest trainer time of the candidates is used.
    let told = "epochs from the 2nd on take 4.00 s from the feature cache (1.2 GB)";
    assert!(text.contains(told), "{text}");
    let planned = frostline(&["plan", "--json", "--simulate", file]);
    let object: Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(object["kept_iterations"], 72);
    assert_eq!(object["store_bytes"], 1_200_000_000);
    assert_eq!(object["later_epoch_seconds"], 4.0);
    std::fs::write(file, planned.stdout).unwrap();
    let again = frostline(&["plan", "--json", "--simulate", file]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again, object);
}
