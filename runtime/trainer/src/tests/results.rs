//! Results in the run folder.

use super::labels::{flags, numbers, wanted};
use super::whole_job::{job, photos, run};
use crate::{Job, LossName, RunFolder};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn told(folder: &Path) -> (Vec<Vec<String>>, Vec<Value>) {
    let mut table = csv::Reader::from_path(folder.join("predictions.csv")).unwrap();
    let rows = table
        .records()
        .map(|row| row.unwrap().iter().map(str::to_owned).collect());
    let mistakes = fs::read(folder.join("mistakes/mistakes.json"));
    let mistakes = mistakes.map_or_else(|_| Vec::new(), |text| serde_json::from_slice(&text).unwrap());
    (rows.collect(), mistakes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_folder_contains_all_predictions_and_the_worst_mistakes() {
    let (host, _) = photos().start().await;
    for (epochs, rate) in [(1, 1e-6), (3, 0.05)] {
        let out = TempDir::new().unwrap();
        let folder = out.path().join("run");
        let stale = folder.join("mistakes/23.png");
        fs::create_dir_all(folder.join("mistakes")).unwrap();
        fs::write(&stale, "of the run before").unwrap();
        let mut kept: Job = job("features", out.path());
        kept.run = Some(RunFolder::new(&folder));
        kept.spec.recipe.epochs = epochs;
        kept.spec.recipe.lr = Some(crate::LearningRates::One(rate));
        let ran = run(&host, kept).await;
        let crate::Quality::Classes { accuracy } = ran.outcome.unwrap().validation else {
            panic!("samples have classes");
        };
        assert!(!stale.exists());
        let (rows, mistakes) = told(&folder);
        assert_eq!(rows.len(), 6);
        let wrong: Vec<&Vec<String>> = rows.iter().filter(|row| row[1] != row[2]).collect();
        assert_eq!(wrong.len(), mistakes.len());
        assert!((accuracy - (1.0 - wrong.len() as f64 / 6.0)).abs() < 1e-9);
        let mut before = f64::INFINITY;
        for mistake in &mistakes {
            let row = wrong.iter().find(|row| mistake["key"] == row[0]).unwrap();
            assert_eq!(
                (&mistake["label"], &mistake["predicted"]),
                (&Value::from(row[1].clone()), &Value::from(row[2].clone()))
            );
            let sure = mistake["probability"].as_f64().unwrap();
            assert!(sure <= before);
            before = sure;
            let image = fs::read(folder.join("mistakes").join(mistake["image"].as_str().unwrap())).unwrap();
            let mut decoded = png::Decoder::new(std::io::Cursor::new(image))
                .read_info()
                .unwrap();
            let mut values = vec![0; decoded.output_buffer_size().unwrap()];
            decoded.next_frame(&mut values).unwrap();
            // The image has a single color. The strongest channel (blue, green or red) is the class.
            let strongest = ["red", "green", "blue"]
                .into_iter()
                .zip(&values[..3])
                .max_by_key(|(_, value)| **value)
                .unwrap();
            assert_eq!(mistake["label"], strongest.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_numbers_have_their_mistakes_too() {
    for (storage, loss) in [(flags(), LossName::Bce), (numbers(), LossName::Mse)] {
        let (host, _) = storage.start().await;
        let out = TempDir::new().unwrap();
        let folder = out.path().join("run");
        let mut kept = wanted(loss, &out);
        kept.run = Some(RunFolder::new(&folder));
        kept.spec.recipe.epochs = 1;
        run(&host, kept).await.outcome.unwrap();
        let (rows, mistakes) = told(&folder);
        let columns = if loss == LossName::Bce { 3 } else { 2 };
        let wrong = |row: &Vec<String>| {
            row[1..]
                .chunks(columns)
                .filter(|output| output[0] != output[1])
                .count()
        };
        let expected = rows.iter().filter(|row| wrong(row) > 0).count();
        assert_eq!(mistakes.len(), expected, "{rows:?}");
        for mistake in &mistakes {
            let row = rows.iter().find(|row| mistake["key"] == row[0]).unwrap();
            if loss == LossName::Bce {
                assert_eq!(mistake["wrong"], wrong(row));
            } else {
                let told = ["label", "predicted"].map(|field| mistake[field].as_str().unwrap());
                assert!(
                    row[1..].chunks(2).any(|output| output == told),
                    "{mistake} {row:?}"
                );
                let [is, said] = told.map(|number| number.parse::<f64>().unwrap());
                assert!((mistake["error"].as_f64().unwrap() - (is - said).abs()).abs() < 1e-3);
            }
            assert!(
                folder
                    .join("mistakes")
                    .join(mistake["image"].as_str().unwrap())
                    .exists()
            );
        }
    }
}
