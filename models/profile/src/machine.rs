//! Name of this machine. Measurements are only valid for machines with the same name.

/// Returns the processor with its number of cores, or the name of the GPU with the given index. If the system
/// does not report the name, it contains `unknown`.
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

/// Returns the name of a GPU. The driver lists GPUs by bus address. This can differ from the order of CUDA if
/// the machine has different models, and the name is then wrong.
fn gpu_name(index: u32) -> Option<String> {
    let listed = std::fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
    let mut folders: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let folder = folders.get(usize::try_from(index).ok()?)?;
    let text = std::fs::read_to_string(folder.join("information")).ok()?;
    field(&text, "Model").map(str::to_owned)
}

/// Returns the first value of `name` in lines of the form `name : value`.
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
