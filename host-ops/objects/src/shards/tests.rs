//! Valid and hostile archives.

use super::{ArchiveError, Index};
use bytes::Bytes;
use futures::{FutureExt, stream};
use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

fn file(name: &str, content: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), content.to_vec())
}

fn pack(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, content.as_slice())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

/// Indexes an archive that arrives in pieces of `piece` bytes.
fn index(archive: &[u8], piece: usize) -> Result<Index, ArchiveError> {
    let pieces = archive.chunks(piece);
    let pieces = pieces.map(|piece| Ok(Bytes::copy_from_slice(piece)));
    Index::read(stream::iter(pieces)).now_or_never().unwrap()
}

/// Returns the name, label and content for each sample.
fn samples(archive: &[u8]) -> Vec<(String, Option<String>, Vec<u8>)> {
    let index = index(archive, 4096).unwrap();
    let entries = index.after("").iter().map(|entry| {
        let content = archive[entry.offset as usize..(entry.offset + entry.size) as usize].to_vec();
        (
            entry.name.clone(),
            entry.label.as_deref().map(str::to_owned),
            content,
        )
    });
    entries.collect()
}

#[test]
fn hidden_members_are_skipped_and_all_image_formats_are_samples() {
    let archive = pack(&[
        file("./._00001.jpg", b"attributes"),
        file("./00001.jpg", b"one"),
        file("./._00001.cls", b"attributes"),
        file("./00001.cls", b"cat"),
        file(".cache/00002.jpg", b"hidden"),
        file("00003.BMP", b"three"),
        file("00003.cls", b"dog"),
    ]);
    let expected = [
        ("00001.jpg".to_owned(), Some("cat".to_owned()), b"one".to_vec()),
        ("00003.BMP".to_owned(), Some("dog".to_owned()), b"three".to_vec()),
    ];
    assert_eq!(samples(&archive), expected);
    let every: Vec<_> = frostline_tensor::IMAGE_EXTENSIONS
        .iter()
        .map(|extension| file(&format!("1.{extension}"), b"x"))
        .collect();
    assert_eq!(samples(&pack(&every)).len(), every.len());
}

#[test]
fn files_that_stand_in_for_a_shard_are_named() {
    for (text, words) in [
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
            "git lfs pull",
        ),
        ("<html><body>404</body></html>", "an HTML page"),
        ("bplist00", "an iCloud placeholder"),
        ("outs:\n- md5: 0\n", "dvc pull"),
        (
            "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>",
            "an XML document",
        ),
    ] {
        let error = index(text.as_bytes(), 4096).unwrap_err().to_string();
        assert!(error.starts_with("it is ") && error.contains(words), "{error}");
    }
}

#[test]
fn samples_are_images_with_the_label_of_the_same_name() {
    let long = format!("{}photo.jpg", "folder/".repeat(40));
    let archive = pack(&[
        file("00001.cls", b"cat\n"),
        file("00001.jpg", b"one"),
        file("00001.json", b"{}"),
        file("00002.seg.PNG", &[7; 3000]),
        file("00002.cls", b"03"),
        file("./sub/00003.jpeg", b""),
        file("unlabeled.jpg", b"x"),
        file("blank.jpg", b"y"),
        file("blank.cls", b" \n"),
        file("zero.jpg", b"z"),
        file("zero.cls", b"00"),
        file(&long, b"long"),
    ]);
    let found = samples(&archive);
    let expected = [
        ("00001.jpg", Some("cat"), b"one".to_vec()),
        ("00002.seg.PNG", Some("3"), vec![7; 3000]),
        ("blank.jpg", None, b"y".to_vec()),
        (long.as_str(), None, b"long".to_vec()),
        ("sub/00003.jpeg", None, b"".to_vec()),
        ("unlabeled.jpg", None, b"x".to_vec()),
        ("zero.jpg", Some("0"), b"z".to_vec()),
    ];
    let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, expected.each_ref().map(|(name, ..)| *name));
    for (found, (name, label, content)) in found.iter().zip(expected) {
        assert_eq!(
            (found.0.as_str(), found.1.as_deref(), &found.2),
            (name, label, &content)
        );
    }
    let whole = index(&archive, archive.len()).unwrap();
    for piece in [1, 7, 511, 512, 513] {
        assert_eq!(index(&archive, piece).unwrap(), whole, "pieces of {piece}");
    }
    assert_eq!(whole.get("00001.jpg").map(|entry| entry.size), Some(3));
    assert_eq!(whole.get("00001.cls"), None);
    assert_eq!(whole.after("blank.jpg").len(), 4);
}

#[test]
fn extended_headers_name_and_measure() {
    let mut builder = Builder::new(Vec::new());
    let records = [
        ("SCHILY.xattr.note", "a\nb=c".as_bytes()),
        ("path", "ü/1.jpg".as_bytes()),
    ];
    builder.append_pax_extensions(records).unwrap();
    let mut header = Header::new_ustar();
    header.set_path("other.jpg").unwrap();
    header.set_size(4);
    header.set_cksum();
    builder.append(&header, &b"four"[..]).unwrap();
    let archive = builder.into_inner().unwrap();
    assert_eq!(
        samples(&archive),
        [("ü/1.jpg".to_owned(), None, b"four".to_vec())]
    );
}

#[test]
fn the_later_of_two_files_with_one_name_wins() {
    let archive = pack(&[
        file("a.jpg", b"old"),
        file("a.jpg", b"newer"),
        file("a.cls", b"x"),
        file("a.cls", b"y"),
    ]);
    assert_eq!(
        samples(&archive),
        [("a.jpg".to_owned(), Some("y".to_owned()), b"newer".to_vec())]
    );
}

/// Returns the header of a member with a name that `tar::Builder` would not write.
fn raw(name: &[u8], kind: EntryType, size: u64) -> Vec<u8> {
    let mut header = Header::new_old();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[test]
fn names_that_lead_elsewhere_are_no_samples() {
    for name in [
        &b"../a.jpg"[..],
        b"/etc/a.jpg",
        b"a/../../b.jpg",
        b"a//b.jpg",
        b"a\nb.jpg",
        b"a\\..\\b.jpg",
        b"\xff.jpg",
        b"%2e%2e/a.jpg",
    ] {
        let archive = raw(name, EntryType::Regular, 0);
        assert_eq!(samples(&archive), [], "{}", String::from_utf8_lossy(name));
        let odd = index(&archive, 512).unwrap().odd().count;
        assert_eq!(odd, 1, "{}", String::from_utf8_lossy(name));
    }
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Directory,
        EntryType::Fifo,
        EntryType::Block,
    ] {
        assert_eq!(samples(&raw(b"a.jpg", kind, 0)), [], "{kind:?}");
    }
    // Files other than images are not samples under any name.
    assert_eq!(
        index(&raw(b"../a.json", EntryType::Regular, 0), 512)
            .unwrap()
            .odd()
            .count,
        0
    );
}

#[test]
fn archives_that_lie_are_refused() {
    let good = pack(&[file("a.jpg", &[1; 700]), file("a.cls", b"cat")]);
    let cut = |length: usize| index(&good[..length], 512).unwrap_err();
    assert!(matches!(cut(300), ArchiveError::CutOff { at: 300 }));
    assert!(matches!(cut(800), ArchiveError::CutOff { at: 800 }));
    let mut damaged = good.clone();
    damaged[1] ^= 1;
    assert!(matches!(
        index(&damaged, 512),
        Err(ArchiveError::Header { at: 0 })
    ));
    assert!(matches!(
        index(b"\x1f\x8b gzip, and then some".repeat(50).as_slice(), 512),
        Err(ArchiveError::Header { at: 0 })
    ));
    for size in [u64::MAX, 1 << 63, (1 << 63) - 512] {
        let error = index(&raw(b"a.jpg", EntryType::Regular, size), 512).unwrap_err();
        assert!(matches!(error, ArchiveError::Header { at: 0 }), "{size}: {error}");
    }
    // The archive is shorter than its header states.
    let error = index(&raw(b"a.jpg", EntryType::Regular, 1 << 40), 512).unwrap_err();
    assert!(matches!(error, ArchiveError::CutOff { at: 512 }));
    let error = index(&raw(b"x", EntryType::GNULongName, 1 << 30), 512).unwrap_err();
    assert!(matches!(error, ArchiveError::Name { at: 0, .. }), "{error}");
    let error = index(&raw(b"x", EntryType::XHeader, 1 << 30), 512).unwrap_err();
    assert!(matches!(error, ArchiveError::CutOff { at: 512 }), "{error}");
    let error = index(&raw(b"x", EntryType::XHeader, u64::MAX), 512).unwrap_err();
    assert!(matches!(error, ArchiveError::Header { at: 0 }), "{error}");
    let error = index(&raw(b"x", EntryType::GNUSparse, 0), 512).unwrap_err();
    assert!(matches!(error, ArchiveError::Sparse { .. }));
}

/// Returns a pax header with these records, each with its length.
fn extended(kind: EntryType, records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (keyword, value) in records {
        let rest = keyword.len() + value.len() + 3;
        let digits = (1..)
            .find(|digits| (rest + digits).to_string().len() == *digits)
            .unwrap();
        content.extend(format!("{} {keyword}=", rest + digits).into_bytes());
        content.extend_from_slice(value);
        content.push(b'\n');
    }
    let mut archive = raw(b"x", kind, content.len() as u64);
    content.resize(content.len().next_multiple_of(512), 0);
    archive.extend(content);
    archive
}

#[test]
fn extended_headers_of_any_size_are_passed_over() {
    let fork = vec![b'A'; 300_000];
    let keyword = format!("SCHILY.xattr.{}", "k".repeat(100_000));
    let mut archive = extended(
        EntryType::XHeader,
        &[
            ("LIBARCHIVE.xattr.com.apple.ResourceFork", &fork),
            (&keyword, b"1\n2=3"),
            ("path", b"named.jpg"),
            ("comment", b""),
        ],
    );
    archive.extend(pack(&[file("other.jpg", b"four")]));
    assert_eq!(
        samples(&archive),
        [("named.jpg".to_owned(), None, b"four".to_vec())]
    );
    let whole = index(&archive, archive.len()).unwrap();
    for piece in [1, 13, 512, 70_000] {
        assert_eq!(index(&archive, piece).unwrap(), whole, "pieces of {piece}");
    }
    // A name is needed, so it has a limit.
    let archive = extended(EntryType::XHeader, &[("path", &fork)]);
    let error = index(&archive, 512).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("300001 bytes") && error.contains("rename"),
        "{error}"
    );
}

#[test]
fn an_extended_header_applies_to_the_next_file_only() {
    let content = vec![7; 700];
    for between in [EntryType::XGlobalHeader, EntryType::GNULongLink] {
        let mut archive = extended(EntryType::XHeader, &[("size", b"700"), ("path", b"big.jpg")]);
        archive.extend(extended(between, &[("comment", b"x")]));
        archive.extend(raw(b"short.jpg", EntryType::Regular, 0));
        archive.extend_from_slice(&content);
        archive.resize(archive.len().next_multiple_of(512), 0);
        archive.extend(pack(&[file("next.jpg", b"n")]));
        let expected = [
            ("big.jpg".to_owned(), None, content.clone()),
            ("next.jpg".to_owned(), None, b"n".to_vec()),
        ];
        assert_eq!(samples(&archive), expected, "{between:?}");
    }
}

#[test]
fn extended_headers_that_make_no_sense_are_refused() {
    for records in [
        &b"5 a=b\n"[..],
        b"x a=b\n",
        b"99 a=b\n",
        b"7 ab=c",
        b"0 a=b\n",
        b"6 abc\n",
        b"18446744073709551616 a=b\n",
        b"10 size=x\n",
        b"11 size=-1\n",
    ] {
        let mut archive = raw(b"x", EntryType::XHeader, records.len() as u64);
        archive.extend_from_slice(records);
        archive.resize(1024, 0);
        let error = index(&archive, 512).map(drop);
        assert!(
            matches!(error, Err(ArchiveError::Header { .. })),
            "{}: {error:?}",
            String::from_utf8_lossy(records)
        );
    }
}

#[test]
fn an_archive_of_names_takes_bounded_memory() {
    let headers = (0..1_000_000u32).map(|number| {
        let mut name = format!("{number:08}/{}", "a".repeat(80));
        name.push_str(".jpg");
        Ok(raw(name.as_bytes(), EntryType::Regular, 0).into())
    });
    let read = Index::read(stream::iter(headers)).now_or_never().unwrap();
    assert!(matches!(read, Err(ArchiveError::TooMany { .. })));
}

proptest! {
    #[test]
    fn damage_never_panics_nor_leads_outside(
        changes in prop::collection::vec((0usize..6000, any::<u8>()), 0..8),
        mend in any::<bool>(),
        length in 0usize..6000,
        piece in 1usize..2000,
    ) {
        let long = format!("{}.jpg", "n".repeat(150));
        let mut archive = pack(&[file("a.jpg", &[9; 600]), file("a.cls", b"cat"), file(&long, b"z")]);
        for (at, value) in changes {
            if let Some(byte) = archive.get_mut(at) {
                *byte = value;
            }
        }
        if mend {
            mend_checksums(&mut archive);
        }
        archive.truncate(length);
        if let Ok(index) = index(&archive, piece) {
            for entry in index.after("") {
                prop_assert!(entry.offset + entry.size <= archive.len() as u64);
            }
        }
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..3000), piece in 1usize..2000) {
        let _ = index(&noise, piece);
    }
}

/// Recomputes checksums to let the parser accept damaged headers.
fn mend_checksums(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512) {
        if block.starts_with(b"a.") || block.starts_with(b"././@") || block.starts_with(b"nnn") {
            let mut header = Header::new_old();
            header.as_mut_bytes().copy_from_slice(block);
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
    }
}
