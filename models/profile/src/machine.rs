//! What to call this machine: figures of one say nothing about another.

/// The processor with its cores, or, with the index of a GPU, that GPU's name; `unknown` and the device where the system does not
/// tell.
pub fn machine(gpu: Option<u32>) -> String {
    match gpu {
        Some(index) => gpu_name(index).unwrap_or_else(|| format!("unknown cuda:{index}")),
        None => {
            let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            format!("{}, {cores} cores", processor(&text))
        }
    }
}

fn processor(cpuinfo: &str) -> &str {
    field(cpuinfo, "model name").unwrap_or("unknown processor")
}

/// The driver lists its GPUs by bus address, which is CUDA's order only where all are alike; on others the name may be a neighbor's.
fn gpu_name(index: u32) -> Option<String> {
    let listed = std::fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
    let mut folders: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let folder = folders.get(usize::try_from(index).ok()?)?;
    let text = std::fs::read_to_string(folder.join("information")).ok()?;
    field(&text, "Model").map(str::to_owned)
}

/// The first value of `name` in lines of `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_read_from_the_systems_text() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.4 GHz\nflags\t: fpu\nmodel name\t: Other\n";
        assert_eq!(processor(text), "Some CPU @ 2.4 GHz");
        assert_eq!(processor("Hardware : board\nmodel name :\n"), "unknown processor");
        assert_eq!(processor(""), "unknown processor");
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(machine(None).ends_with(" cores"));
        assert!(!machine(Some(u32::MAX)).is_empty());
    }
}
