//! `frostline admin model publish`: a file's way to a host.

use super::client::AdminClient;
use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use frostline_wire::{UploadInfo, repr_digest};
use futures::stream::{self, Stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use sha2::{Digest, Sha256};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// Bytes read at a time.
const PIECE: usize = 256 << 10;

/// Sends a file piece by piece. One that is changed meanwhile no longer hashes to what was said, and is refused.
pub(super) async fn publish(client: &AdminClient, name: &str, path: &Path) -> Result<UploadInfo> {
    let named = || format!("cannot read {}", path.display());
    let (bytes, sha256) = hashed(path).await.with_context(named)?;
    let digest = repr_digest(&sha256).unwrap_or_default();
    let file = File::open(path).await.with_context(named)?;
    let body = StreamBody::new(pieces(file)).boxed_unsync();
    client
        .put(&format!("/v1/models/{name}"), (bytes, &digest), body)
        .await
}

async fn hashed(path: &Path) -> io::Result<(u64, String)> {
    let path = path.to_owned();
    let hash = move || {
        let mut file = BufReader::with_capacity(PIECE, std::fs::File::open(path)?);
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        loop {
            let piece = file.fill_buf()?;
            if piece.is_empty() {
                return Ok((bytes, hex::encode(hash.finalize())));
            }
            hash.update(piece);
            let read = piece.len();
            bytes += read as u64;
            file.consume(read);
        }
    };
    tokio::task::spawn_blocking(hash)
        .await
        .map_err(io::Error::other)?
}

fn pieces(file: File) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    stream::try_unfold(file, |mut file| async move {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        Ok((read > 0).then(|| (Frame::data(piece.freeze()), file)))
    })
}
