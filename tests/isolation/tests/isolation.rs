//! Every case once, with the neighbour at work beside it.

use frostline_e2e::frostline_binary;
use frostline_isolation::{Neighbour, Scene, cases};
use tokio::sync::watch;

#[tokio::test(flavor = "multi_thread")]
async fn every_case_is_contained() {
    let binary = frostline_binary().expect("frostline is not built: run `cargo xtask test`");
    let scene = Scene::start(&binary, &[]).await.unwrap();
    let neighbour = Neighbour::start(&scene).await.unwrap();
    let cases = cases();
    assert!(cases.len() >= 48, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let (stop, stopped) = watch::channel(false);
        let (seen, beside) = tokio::join!(
            async {
                let seen = case.run(&scene).await;
                let _ = stop.send(true);
                seen
            },
            neighbour.work(stopped)
        );
        let name = &case.name;
        match seen {
            Ok(seen) if case.ended_well(&seen) => {}
            Ok(seen) => wrong.push(format!("{name}: {:?}, not {:?}", seen, case.expected)),
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
        wrong.extend(
            beside
                .err()
                .map(|error| format!("{name}: its neighbour: {error:#}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    assert_eq!(scene.panics().unwrap(), 0, "{}", scene.log().unwrap());
    let top = scene.admin(&["top", "--once"]).unwrap();
    assert_eq!(top["running"], 0, "nothing outlives its extraction");
}
