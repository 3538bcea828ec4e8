//! Tests of the files that confined threads can open. `tests/isolation` tests the restrictions of a lost
//! process in a separate process.

#![cfg(target_os = "linux")]

use super::{Files, Wall, confine, missing};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

/// Returns the result of `tried` on a thread confined to `files`, or `None` if the kernel does not support
/// Landlock.
fn behind<T: Send>(files: Files<'_>, tried: impl FnOnce() -> T + Send) -> Option<T> {
    let confined = || match confine(files).unwrap().contains(&Wall::Landlock) {
        true => None,
        false => Some(tried()),
    };
    std::thread::scope(|scope| scope.spawn(confined).join().unwrap())
}

fn refused<T>(tried: std::io::Result<T>) -> bool {
    tried.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

mod needs_walls {
    use super::*;

    #[test]
    fn neither_wall_is_missing() {
        assert_eq!(missing(), []);
    }

    #[test]
    fn only_files_of_the_own_folder_are_opened() {
        let own = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        for folder in [&own, &other] {
            fs::write(folder.path().join("file"), "text").unwrap();
        }
        let read = |folder: &Path| fs::read(folder.join("file"));
        let write = |folder: &Path| File::create(folder.join("made")).map(drop);
        let own = own.path();
        let other = other.path();
        let reader = behind(Files::Read(own), || {
            (read(own), read(other), fs::read_dir(own).map(drop))
        });
        let (inside, outside, listed) = reader.unwrap();
        assert_eq!(inside.unwrap(), b"text");
        assert!(refused(outside) && refused(listed));
        let writer = behind(Files::Write(own), || (write(own), read(other), write(other)));
        let (inside, read_outside, written_outside) = writer.unwrap();
        inside.unwrap();
        assert!(refused(read_outside) && refused(written_outside));
        let nobody = behind(Files::None, || (read(own), fs::metadata(own), fs::read_link(own)));
        let (read, attributes, target) = nobody.unwrap();
        assert!(refused(read));
        for error in [attributes.unwrap_err(), target.unwrap_err()] {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        }
    }
}

mod needs_proc {
    use super::super::StatusFile;

    #[test]
    fn a_process_is_measured_until_it_ends() {
        let own = StatusFile::own().unwrap().read().unwrap();
        assert!(own.anonymous > 0 && own.peak >= own.anonymous && own.data > 0 && own.tables > 0);
        assert!(own.private() > own.anonymous && own.threads >= 1);
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let status = StatusFile::open(child.id()).unwrap();
        assert_eq!(status.read().unwrap().threads, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(status.read().is_none());
    }
}
