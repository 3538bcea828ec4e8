//! Output files, which are moved to the target path after the last write.

use anyhow::{Context, Result, bail};
use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;
use frostline_sealed::whole_file::{self, Unfinished};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Compression level. Activations are written once and read often. The fastest level already compresses the
/// zeros well.
const LEVEL: i32 = 1;

/// Target size of a row group in bytes. Writers and readers keep a whole row group in memory.
const GROUP: usize = 64 << 20;

/// Format of an output file, determined by the extension of `--out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Arrow's file format, uncompressed, so that it can be mapped into memory.
    Arrow,
    /// Parquet, compressed by Zstandard.
    Parquet,
}

impl Format {
    /// Returns the format for the extension of a path.
    fn from_extension(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("arrow") => Ok(Self::Arrow),
            Some("parquet") => Ok(Self::Parquet),
            _ => bail!(
                "unknown format of --out {}; use the extension .arrow or .parquet",
                path.display()
            ),
        }
    }
}

/// Checks that activations can be written to a file of this name, before any request to a host, and returns the
/// format.
pub(crate) fn check_output(path: &Path) -> Result<Format> {
    let format = Format::from_extension(path)?;
    whole_file::check(path).with_context(|| cannot(path))?;
    Ok(format)
}

/// An output file with a temporary name.
pub(super) struct RowFile {
    path: PathBuf,
    file: Unfinished,
    writer: FormatWriter,
}

enum FormatWriter {
    Arrow(Box<FileWriter<BufWriter<File>>>),
    Parquet(Box<ArrowWriter<BufWriter<File>>>),
}

impl RowFile {
    pub(super) fn create(path: &Path, format: Format, schema: &SchemaRef) -> Result<Self> {
        let file = Unfinished::create(path).with_context(|| cannot(path))?;
        let to = BufWriter::new(file.file().try_clone()?);
        let writer = match format {
            Format::Arrow => FormatWriter::Arrow(Box::new(FileWriter::try_new(to, schema)?)),
            Format::Parquet => {
                let level = Compression::ZSTD(ZstdLevel::try_new(LEVEL)?);
                let properties = WriterProperties::builder()
                    .set_compression(level)
                    // Dictionaries are useless, because keys and activations are unique.
                    .set_dictionary_enabled(false)
                    .build();
                FormatWriter::Parquet(Box::new(ArrowWriter::try_new(
                    to,
                    schema.clone(),
                    Some(properties),
                )?))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            writer,
        })
    }

    /// Writes a record batch, which is part of a row group in Parquet files.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = match &mut self.writer {
            FormatWriter::Arrow(writer) => writer.write(batch).map_err(anyhow::Error::from),
            FormatWriter::Parquet(writer) => writer
                .write(batch)
                .and_then(|()| match writer.in_progress_size() {
                    size if size >= GROUP => writer.flush(),
                    _ => Ok(()),
                })
                .map_err(anyhow::Error::from),
        };
        written.with_context(|| cannot(&self.path))
    }

    /// Completes the file and moves it to the target path.
    pub(super) fn finish(self) -> Result<()> {
        let Self { path, file, writer } = self;
        let written = match writer {
            FormatWriter::Arrow(writer) => writer.into_inner().map_err(anyhow::Error::from),
            FormatWriter::Parquet(writer) => writer.into_inner().map_err(anyhow::Error::from),
        };
        let flushed = written.and_then(|mut to| Ok(to.flush()?));
        flushed.with_context(|| cannot(&path))?;
        let finished = file.finish().map(drop);
        finished.with_context(|| cannot(&path))
    }
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::rows::{RowSchema, SampleAnnotation};
    use arrow_array::Array;
    use frostline_client::Part;
    use std::collections::HashMap;

    fn write(path: &Path, finish: bool) {
        let rows = RowSchema::new(&[2, 3], &[]).unwrap();
        let mut file = RowFile::create(path, Format::from_extension(path).unwrap(), rows.schema()).unwrap();
        for count in [2, 1] {
            let place = SampleAnnotation {
                part: Some(Part::Test),
                label: Some("cat".to_owned()),
            };
            let places = HashMap::from([("cat/0.jpg".to_owned(), place)]);
            let keys = ["cat/0.jpg", "cat/1.jpg"][..count].to_vec();
            let values = (0..count * 6).map(|value| value as f32).collect();
            let batch = rows.batch(keys, values, &places).unwrap();
            let splits = batch.column_by_name("split").unwrap();
            assert_eq!((splits.is_null(0), splits.null_count()), (false, count - 1));
            file.write(&batch).unwrap();
        }
        if finish {
            file.finish().unwrap();
        }
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        for (name, magic) in [("x.arrow", &b"ARROW1"[..]), ("x.parquet", b"PAR1")] {
            let path = folder.path().join(name);
            write(&path, false);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            write(&path, true);
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes.starts_with(magic) && bytes.ends_with(magic), "{name}");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn the_name_says_the_format() {
        assert_eq!(
            Format::from_extension(Path::new("a/x.arrow")).unwrap(),
            Format::Arrow
        );
        for name in ["x", "x.csv", "arrow"] {
            let error = Format::from_extension(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains(".parquet"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let occupied = folder.path().join("x.arrow");
        std::fs::create_dir(&occupied).unwrap();
        assert!(check_output(&occupied).is_err());
        assert!(check_output(&folder.path().join("no/such/x.arrow")).is_err());
    }
}
