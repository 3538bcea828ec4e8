//! Memory figures of processes, from `/proc`.

use anyhow::{Context, Result};

/// Returns a field such as `VmRSS` from the process's status in bytes, or `None` if the process has ended.
pub(crate) fn bytes(process: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    bytes_in(&status, field)
}

/// Like [`bytes()`], for this process.
pub(crate) fn own_bytes(field: &str) -> Result<u64> {
    bytes(std::process::id(), field)
        .with_context(|| format!("/proc/self/status has no {field}; this needs Linux"))
}

/// Proportional set size of a process, in bytes.
pub(crate) fn proportional(process: u32) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    bytes_in(&rollup, "Pss")
}

/// Returns the bytes in a line such as `Pss:  12 kB`.
fn bytes_in(text: &str, field: &str) -> Option<u64> {
    let kib: u64 = text.lines().find_map(|line| {
        let value = line.strip_prefix(field)?.strip_prefix(':')?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    })?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::bytes_in;

    #[test]
    fn fields_are_distinguished_from_longer_names() {
        let text = "Pss_Anon:  1 kB\nPss:   3 kB\n";
        assert_eq!(bytes_in(text, "Pss"), Some(3072));
        assert_eq!(bytes_in(text, "VmRSS"), None);
    }
}
