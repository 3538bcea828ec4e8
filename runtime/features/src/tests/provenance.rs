//! Tests of the inputs that determine the values.

use crate::{Exactly, Form, Provenance, Rounding};
use frostline_tensor::PixelSpec;
use frostline_wire::{Encoding, Precision, Split};
use std::collections::HashSet;

const PIXELS: &str = r#"{"resize":256,"crop_height":224,"crop_width":224,"mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}"#;

fn provenance() -> Provenance {
    Provenance {
        model: "net".to_owned(),
        freeze: "layer4.0".to_owned(),
        data: "s3://photos/all".to_owned(),
        layers: "5e".to_owned(),
        guest: "9a".to_owned(),
        parameters: PIXELS.to_owned(),
        rounding: Rounding::Exact,
        precision: Precision::Full,
        fixed_batch: None,
        library: "1.31.1".to_owned(),
        device: "cpu".to_owned(),
        exactly: None,
        shape: vec![512, 7, 7],
        tensors: Vec::new(),
    }
}

fn name(change: impl FnOnce(&mut Provenance)) -> String {
    let mut provenance = provenance();
    change(&mut provenance);
    provenance.subject().name(&provenance.row())
}

fn exactly(split: &str, batch: usize, threads: usize) -> Option<Exactly> {
    let split = Split::from(split);
    Some(Exactly {
        split,
        batch,
        threads,
    })
}

#[test]
fn each_input_has_rows_of_its_own() {
    let names = [
        name(|_| ()),
        name(|rows| rows.data = "s3://photos/some".to_owned()),
        name(|rows| rows.layers = "5f".to_owned()),
        name(|rows| rows.guest = "9b".to_owned()),
        name(|rows| rows.parameters = PIXELS.replace("256", "255")),
        name(|rows| rows.parameters = "other words".to_owned()),
        name(|rows| rows.rounding = Rounding::HalfBeforeLayers),
        name(|rows| rows.rounding = Rounding::Half),
        name(|rows| rows.rounding = Rounding::Int8("layer2.0".to_owned())),
        name(|rows| rows.rounding = Rounding::Int8("layer3.0".to_owned())),
        name(|rows| rows.precision = Precision::Tf32),
        name(|rows| rows.precision = Precision::F16),
        name(|rows| rows.fixed_batch = Some(16)),
        name(|rows| rows.library = "1.32.0".to_owned()),
        name(|rows| rows.device = "cuda:0".to_owned()),
        name(|rows| rows.shape = vec![512, 49]),
        name(|rows| rows.exactly = exactly("layer2.0", 16, 2)),
        name(|rows| rows.exactly = exactly("layer3.0", 16, 2)),
        name(|rows| rows.exactly = exactly("layer2.0", 8, 2)),
        name(|rows| rows.exactly = exactly("layer2.0", 16, 1)),
    ];
    let distinct: HashSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    let made_by = provenance().subject().made_by;
    assert_eq!(made_by["frostline"], env!("CARGO_PKG_VERSION"));
    assert_eq!(made_by["pixels"], PixelSpec::VERSION);
}

#[test]
fn the_same_rows_have_one_name_whatever_people_call_them() {
    let same = name(|_| ());
    let others = [
        name(|rows| rows.model = "other".to_owned()),
        name(|rows| rows.freeze = "/layer4/0/Relu_output_0".to_owned()),
        name(|rows| rows.data = "s3://photos/all/".to_owned()),
        name(|rows| rows.parameters = PIXELS.replace(':', ": ").replace("0.485", "0.4850")),
    ];
    assert_eq!(others, [same.clone(), same.clone(), same.clone(), same]);
    let here = std::env::current_dir().unwrap();
    let root = |root: String| name(|rows| rows.data = root);
    let absolute = root(here.join("photos").display().to_string());
    for relative in ["photos", "./photos/", "photos/../photos"] {
        assert_eq!(root(relative.to_owned()), absolute, "{relative}");
    }
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    std::fs::create_dir(&photos).unwrap();
    std::os::unix::fs::symlink(&photos, folder.path().join("link")).unwrap();
    let shown = |path: &std::path::Path| path.display().to_string();
    let expected = root(shown(&photos));
    assert_eq!(root(shown(&folder.path().join("link"))), expected);
    assert_eq!(root(format!("file://{}", photos.display())), expected);
}

#[test]
fn rows_lie_as_exactly_as_they_came() {
    let form = |rounding| {
        Provenance {
            rounding,
            ..provenance()
        }
        .row()
        .form
    };
    let came = |values: &str, split: &str| {
        let encoding: Encoding = values.parse().unwrap();
        Rounding::for_split(encoding, &Split::from(split), "freeze")
    };
    let eight = |split: &str| came("int8", split);
    let all = [
        came("f32", "a"),
        came("f16+zstd", "a"),
        came("f16", "freeze"),
        eight("a"),
    ];
    assert_eq!(came("u8", "input"), Rounding::Exact);
    assert_eq!(
        all.clone().map(form),
        [Form::F32, Form::F32, Form::F16, Form::F32]
    );
    let takes = all.map(|store| {
        [
            Rounding::Exact,
            Rounding::HalfBeforeLayers,
            Rounding::Half,
            eight("a"),
            eight("b"),
        ]
        .map(|rows| store.accepts(&rows))
    });
    assert_eq!(
        takes,
        [
            [true, false, false, false, false],
            [true, true, true, false, false],
            [true, true, true, false, false],
            [true, true, true, true, false],
        ]
    );
}

#[test]
fn a_relative_folder_that_is_not_there_yet_has_a_cache() {
    for folder in ["not-there", "not/there/yet"] {
        let cache = crate::Cache::with_defaults(Some(folder.into()), None).unwrap();
        assert!(cache.path().is_absolute() && cache.limit() > 0, "{folder}");
    }
}
