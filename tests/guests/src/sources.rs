use anyhow::Context;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Sources and compiler of a component, stored in a file next to it.
pub(super) struct Stamp {
    /// Result of [`hash`].
    pub(super) sources: String,
    /// Version line of the compiler, for information only.
    pub(super) compiler: String,
}

impl Stamp {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let json: serde_json::Value = serde_json::from_str(&text)?;
        let field = |name: &str| {
            let value = json.get(name).and_then(serde_json::Value::as_str);
            value
                .map(str::to_owned)
                .with_context(|| format!("{} does not contain {name}", path.display()))
        };
        Ok(Self {
            sources: field("sources_sha256")?,
            compiler: field("compiler")?,
        })
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let json = serde_json::json!({ "sources_sha256": self.sources, "compiler": self.compiler });
        std::fs::write(path, format!("{json:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns the SHA-256 of the paths and contents of all source files in `folders`, and of the manifest and
/// lock file in `guest`.
pub(super) fn hash(guest: &Path, folders: &[&str]) -> anyhow::Result<String> {
    let mut files = vec![guest.join("Cargo.toml"), guest.join("Cargo.lock")];
    for folder in folders {
        collect(&guest.join(folder), &mut files)?;
    }
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(guest)?.to_string_lossy().replace('\\', "/");
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    Ok(hex::encode(hasher.finalize()))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|kind| kind == "rs" || kind == "toml" || kind == "wit")
        {
            files.push(path);
        }
    }
    Ok(())
}
