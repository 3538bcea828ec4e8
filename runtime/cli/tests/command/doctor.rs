use super::{backbone, frostline};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Returns the exit code, the checks with their states, and the whole output.
fn doctor(arguments: &[&str]) -> (Option<i32>, Vec<(String, String)>, String) {
    let output = frostline(&[&["--json", "doctor"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().map(|line| {
        let finding: Value = serde_json::from_str(line).unwrap();
        let word = |name: &str| finding[name].as_str().unwrap().to_owned();
        assert_eq!(
            finding["advice"].is_string(),
            word("state") == "fails" || word("found").contains("NVIDIA GPU")
        );
        (word("check"), word("state"))
    });
    (output.status.code(), found.collect(), text)
}

fn is(found: &[(String, String)], check: &str, state: &str) -> bool {
    found.iter().any(|(name, was)| name == check && was == state)
}

/// A host on a free port.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(folder: &Path) -> Self {
        std::fs::create_dir(folder.join("data")).unwrap();
        std::fs::write(folder.join("data/1.jpg"), "no image, but an object").unwrap();
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let mut child = Command::new(env!("CARGO_BIN_EXE_frostline"))
            .args(["--json", "serve", "--listen", "127.0.0.1:0", "--lanes", "1"])
            .args([
                "--state",
                &at("state"),
                "--data",
                &at("data"),
                "--token-file",
                &at("token"),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: listening["url"].as_str().unwrap().to_owned(),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn doctor_reports_host_checks_with_advice_for_failures() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let data = at("data");
    let token = at("token");
    let asked = ["--host", &served.url, "--token-file", &token];
    let (code, found, text) = doctor(&[&asked[..], &["--data", &data]].concat());
    for check in ["library", "token", "host", "link", "data"] {
        assert!(is(&found, check, "works"), "{check}: {text}");
    }
    assert_eq!(code, Some(0), "{text}");

    // The name may also resolve to an address where no host is listening.
    let named = served.url.replace("http://127.0.0.1", "dns+http://localhost");
    let (_, found, text) = doctor(&["--host", &named, "--token-file", &token]);
    assert!(is(&found, "host", "works"), "{text}");

    let (code, found, text) = doctor(&[&asked[..], &["--data", "/elsewhere"]].concat());
    assert!(code == Some(1) && is(&found, "data", "fails"), "{text}");

    std::fs::write(at("other"), "a-token-of-nobody-that-is-long-enough").unwrap();
    let (code, found, text) = doctor(&["--host", &served.url, "--token-file", &at("other")]);
    assert!(code == Some(1) && is(&found, "token", "fails"), "{text}");
    assert!(!text.contains("a-token-of-nobody"), "{text}");

    let (code, found, _) = doctor(&["--host", "http://127.0.0.1:9", "--token-file", &token]);
    assert!(code == Some(1) && is(&found, "host", "fails"));
    let (code, found, _) = doctor(&["--host", &served.url, "--token-file", &at("absent")]);
    assert!(code == Some(1) && is(&found, "token", "fails"));

    // A missing guest is distinguished from a guest without a log.
    let logs = frostline(&[
        "guest",
        "logs",
        "mine",
        "--host",
        &served.url,
        "--token-file",
        &token,
    ]);
    let said = String::from_utf8(logs.stderr).unwrap();
    assert!(
        logs.status.code() == Some(1) && said.contains("unknown guest"),
        "{said}"
    );
}

#[test]
fn doctor_checks_a_configuration_without_leaving_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |text: &str| {
        std::fs::write(at("host.toml"), text).unwrap();
        doctor(&["--config", at("host.toml").to_str().unwrap()])
    };
    std::fs::create_dir(at("data")).unwrap();
    let good = format!("state = {:?}\ndata = [{:?}]\n", at("state"), at("data"));
    let (code, found, text) = write(&good);
    for check in ["config", "state", "data", "token"] {
        assert!(is(&found, check, "works"), "{check}: {text}");
    }
    assert_eq!(code, Some(0), "{text}");
    assert!(!at("state").exists());
    std::fs::create_dir(at("state")).unwrap();
    assert_eq!(write(&good).0, Some(0));
    let left = walk(&at("state"));
    assert_eq!(left, 0, "files in the state");

    let tls = format!(
        "{good}[tls]\ncertificate = {:?}\nkey = {:?}\n",
        at("cert.pem"),
        at("key.pem")
    );
    let (code, found, text) = write(&tls);
    assert!(code == Some(1) && is(&found, "tls", "fails"), "{text}");
    let (code, found, text) = write(&good.replace("/data", "/nowhere"));
    assert!(code == Some(1) && is(&found, "data", "fails"), "{text}");
    let (code, found, text) = write("listne = 1\n");
    assert!(code == Some(1) && is(&found, "config", "fails"), "{text}");
    assert_eq!(text.matches("unknown field").count(), 1, "{text}");
    assert!(text.contains("line 1: "), "{text}");
}

#[test]
fn doctor_and_check_refuse_what_a_host_would() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |more: &str| {
        let text = format!(
            "state = {:?}\ntoken_file = {:?}\n{more}",
            at("state"),
            at("token")
        );
        std::fs::write(at("host.toml"), text).unwrap();
        let file = at("host.toml").to_str().unwrap().to_owned();
        let checked = frostline(&["serve", "--check", "--config", &file]).status.code();
        (doctor(&["--config", &file]), checked)
    };
    let ((code, _, text), checked) = write("");
    assert!(code == Some(0) && checked == Some(0), "{text}");
    assert!(!at("state").exists() && !at("token").exists());

    std::fs::write(at("file"), "no folder").unwrap();
    let ((code, found, text), checked) = write(&format!("local = {:?}\n", at("file")));
    assert!(code == Some(1) && is(&found, "local", "fails"), "{text}");
    assert_eq!(checked, Some(1));
    let ((code, found, text), checked) = write("metrics_listen = \"127.0.0.1:7433\"\n");
    assert!(code == Some(1) && is(&found, "config", "fails"), "{text}");
    assert!(text.contains("metrics_listen") && checked == Some(1), "{text}");

    std::fs::write(at("token"), "a-token-of-nobody-that-is-long-enough").unwrap();
    let with_mode = |mode| {
        std::fs::set_permissions(at("token"), std::fs::Permissions::from_mode(mode)).unwrap();
        write("").0
    };
    let (code, found, text) = with_mode(0o644);
    assert!(code == Some(1) && is(&found, "token", "fails"), "{text}");
    assert!(
        text.contains("chmod o-rwx") && !text.contains("a-token-of-nobody"),
        "{text}"
    );
    for mode in [0o600, 0o640] {
        let (code, found, text) = with_mode(mode);
        assert!(code == Some(0) && is(&found, "token", "works"), "{text}");
    }
}

/// Returns the number of files below a folder.
fn walk(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { walk(&path) } else { 1 })
        .sum()
}

#[test]
fn a_closed_output_pipe_is_not_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let model = backbone();
    let runs = folder.path().to_str().unwrap();
    let commands: &[&[&str]] = &[
        &["--json", "doctor"],
        &["--help"],
        &["help", "train"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["man"],
        &["reference", "commands"],
        &["model", "show", &model],
        &["runs", runs],
        &["cache", "list", "--feature-folder", runs],
        &["train", "--dry-run", "--model", &model, "--data", runs],
    ];
    for words in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = Command::new(env!("CARGO_BIN_EXE_frostline"))
            .args(*words)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        assert!(
            !said.contains("panicked") && !said.contains("pipe"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_misspelt_setting_of_a_recipe_is_said_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("recipe.toml");
    std::fs::write(&recipe, "lr = 0.1\nepohcs = 3\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_frostline"))
        .args(["train", "--model", &backbone(), "--data", "photos", "--recipe"])
        .arg(&recipe)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("line 2: unknown setting 'epohcs', did you mean 'epochs'?"),
        "{said}"
    );
}
