//! Tests of the layout in a browser.

/// Tests that require Chromium. They are skipped if it is not installed.
mod needs_chromium {
    use crate::sample::{Sample, add_mistakes};
    use frostline_report::{Run, html};
    use std::path::Path;
    use std::process::Command;

    /// Measures the width of a page in a frame. Browser windows cannot be as narrow as a phone.
    const FRAME: &str = r#"<!DOCTYPE html><html><body><iframe id="page" src="page.html" width="390" height="800"></iframe><p id="found"></p><script>
const page = document.getElementById('page');
page.onload = () => {
  const inside = page.contentDocument, view = inside.documentElement;
  const wide = [...inside.querySelectorAll('body *')].filter(of => !of.closest('.scroll') && of.getBoundingClientRect().right > view.clientWidth + 0.5);
  document.getElementById('found').textContent = `view ${view.clientWidth} page ${view.scrollWidth} beyond ${wide.map(of => of.tagName + '.' + of.className).join(' ')};`;
};
</script></body></html>"#;

    /// Returns the DOM after the frame was laid out.
    fn laid_out(folder: &Path, page: &str) -> String {
        std::fs::write(folder.join("page.html"), page).unwrap();
        std::fs::write(folder.join("frame.html"), FRAME).unwrap();
        let output = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--allow-file-access-from-files",
                "--virtual-time-budget=5000",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(format!("file://{}", folder.join("frame.html").display()))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn no_page_is_wider_than_a_phone() {
        let folder = tempfile::tempdir().unwrap();
        let long = "a-name-without-any-place-to-break-it-at-".repeat(6);
        let mut sample = Sample::clothing();
        sample.classes[2] = long.clone();
        let first = sample.write(folder.path(), &long[..200]);
        std::fs::write(folder.path().join("no.png"), "").unwrap();
        add_mistakes(&first, &[folder.path().join("no.png")]);
        let second = Sample {
            rate: 0.1,
            ..Sample::clothing()
        }
        .write(folder.path(), "second");
        let read = |run: &Path| Run::read(run).unwrap();
        for page in [html(&[read(&first)]), html(&[read(&first), read(&second)])] {
            let shown = laid_out(folder.path(), &page);
            assert!(
                shown.contains("view 390 page 390 beyond ;"),
                "{}",
                &shown[shown.len().saturating_sub(2000)..]
            );
        }
    }
}
