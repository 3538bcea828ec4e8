//! Runs and sweeps that are resumed.

use super::case::Case;

/// Runs a script and returns its output.
fn printed(script: &str) -> String {
    let ran = Case::copy("jobs").python(script, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout
}

#[test]
fn a_sweep_that_resumes_refuses_other_settings_and_does_not_train_in_a_dry_run() {
    let said = printed("sweep_resume.py");
    assert!(
        said.contains("(a) --dry-run rc 0 trained the second variant: False"),
        "{said}"
    );
    // Without the folder of the second variant, it has no epochs.
    assert!(said.contains("(b) rc 1 epochs of variants: 6 None"), "{said}");
    assert!(said.contains("epochs is 1, the sweep has 6"), "{said}");
    assert!(said.contains("seed is 5, the sweep has 0"), "{said}");
}

#[test]
fn a_refused_resume_names_only_settings_that_differ() {
    let said = printed("resume_reproducible.py");
    assert!(
        said.contains("reproducible is true, the checkpoint has false"),
        "{said}"
    );
    for same in ["--split", "--candidates", "--fixed-batch"] {
        assert!(!said.contains(same), "{said}");
    }
}
