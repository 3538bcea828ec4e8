/// Content stored instead of an image, a shard or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StandIn {
    /// Git LFS pointer. The file was not fetched.
    #[error("a Git LFS pointer; run `git lfs pull` to download the file")]
    GitLfs,
    /// Pointer of DVC.
    #[error("a DVC pointer; run `dvc pull` to download the file")]
    Dvc,
    /// Placeholder of a file that macOS moved to iCloud.
    #[error("an iCloud placeholder; download the file in Finder or with `brctl download`")]
    ICloud,
    /// Web page.
    #[error("an HTML page, possibly an error or login page; download the file again")]
    Html,
    /// XML document, with which object stores describe errors.
    #[error("an XML document, possibly an error message; download the file again")]
    Xml,
}

impl StandIn {
    /// Detects a stand-in by the first bytes of a file.
    pub fn detect(start: &[u8]) -> Option<Self> {
        const PREFIXES: [(&str, StandIn); 6] = [
            ("version https://git-lfs.github.com/spec/", StandIn::GitLfs),
            ("outs:\n- ", StandIn::Dvc),
            ("bplist00", StandIn::ICloud),
            ("<!doctype html", StandIn::Html),
            ("<html", StandIn::Html),
            ("<?xml", StandIn::Xml),
        ];
        let start = start
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(start)
            .trim_ascii_start();
        let begins = |prefix: &str| {
            let begin = start.get(..prefix.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        let found = PREFIXES.iter().find(|(prefix, _)| begins(prefix));
        found.map(|(_, stand_in)| *stand_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_stand_in_for_others_are_told_by_their_start() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        for (text, expected) in [
            (pointer, Some(StandIn::GitLfs)),
            ("outs:\n- md5: 0\n", Some(StandIn::Dvc)),
            ("bplist00\u{1}", Some(StandIn::ICloud)),
            ("<!DOCTYPE html>\n<html>", Some(StandIn::Html)),
            ("\u{feff}\r\n  <HTML lang=\"en\">", Some(StandIn::Html)),
            (
                "<?xml version='1.0'?><Error><Code>AccessDenied</Code>",
                Some(StandIn::Xml),
            ),
            ("version 2", None),
            ("<svg", None),
            ("", None),
        ] {
            assert_eq!(StandIn::detect(text.as_bytes()), expected, "{text}");
        }
        let message = StandIn::GitLfs.to_string();
        assert!(message.contains("git lfs pull"), "{message}");
    }
}
