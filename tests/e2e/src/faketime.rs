use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Clock of a process that a test moves with libfaketime while the process runs.
#[derive(Debug)]
pub struct FakeClock {
    library: PathBuf,
    /// Seconds by which the clock is ahead, with a sign.
    file: PathBuf,
}

impl FakeClock {
    /// Creates a correct clock that is controlled by `file`. For tests in `needs_libfaketime`.
    ///
    /// # Errors
    /// Returns an error if libfaketime is not installed or the file cannot be written.
    pub fn new(file: PathBuf) -> std::io::Result<Self> {
        let library = libfaketime()
            .ok_or_else(|| std::io::Error::other("libfaketime is not installed; install it with apt-get"))?;
        let clock = Self { library, file };
        clock.shift(0)?;
        Ok(clock)
    }

    /// Sets the clock `seconds` ahead of the system's. Processes notice this within a second.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn shift(&self, seconds: i64) -> std::io::Result<()> {
        // A process must not read a file that is written in part.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n"))?;
        fs::rename(next, &self.file)
    }

    /// Runs `command` with this clock. Timers and the times of files stay correct, as on a machine whose clock is set.
    pub fn apply(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
    }
}

/// Returns the path of libfaketime if it is installed.
pub fn libfaketime() -> Option<PathBuf> {
    // Debian installs it in /usr/lib/x86_64-linux-gnu/faketime, other systems in /usr/lib or /usr/local/lib.
    let folders = ["/usr/lib", "/usr", "/usr/local"];
    let folders = folders.iter().filter_map(|folder| fs::read_dir(folder).ok());
    folders
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}
