//! S3 operations on objects in memory, served by `s3s`.

use bytes::Bytes;
use s3s::dto::{
    ETag, ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, PutObjectInput, PutObjectOutput, StreamingBlob,
    Timestamp,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// The only bucket.
pub(crate) const BUCKET: &str = "photos";

/// Objects of [`BUCKET`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<String, (Bytes, String)>,
    written: usize,
    habit: Habit,
}

/// Continuation of listings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Habit {
    /// After the requested key or token.
    #[default]
    GoesOn,
    /// After the token; the key to start after is ignored.
    StartsOver,
    /// After the key or token, ordered by folder: objects in `a/` precede `a-1`.
    ByFolder,
    /// Always from the beginning.
    NeverMoves,
}

impl Contents {
    /// Writes an object with a new etag.
    pub(crate) fn put(&self, key: &str, body: impl Into<Bytes>) {
        let mut inner = self.0.lock().unwrap();
        inner.written += 1;
        let etag = format!("version-{}", inner.written);
        inner.objects.insert(key.to_owned(), (body.into(), etag));
    }

    pub(crate) fn behave(&self, habit: Habit) {
        self.0.lock().unwrap().habit = habit;
    }

    pub(crate) fn remove(&self, key: &str) {
        self.0.lock().unwrap().objects.remove(key);
    }

    fn find(&self, bucket: &str, key: &str, if_match: Option<&ETagCondition>) -> S3Result<(Bytes, ETag)> {
        if bucket != BUCKET {
            return Err(s3_error!(NoSuchBucket));
        }
        let inner = self.0.lock().unwrap();
        let (body, etag) = inner.objects.get(key).ok_or_else(|| s3_error!(NoSuchKey))?;
        match if_match {
            Some(ETagCondition::ETag(asked)) if asked.value() != etag => Err(s3_error!(PreconditionFailed)),
            _ => Ok((body.clone(), ETag::Strong(etag.clone()))),
        }
    }
}

fn now() -> Option<Timestamp> {
    Some(Timestamp::from(SystemTime::now()))
}

#[async_trait::async_trait]
impl S3 for Contents {
    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let (body, etag) = self.find(&input.bucket, &input.key, input.if_match.as_ref())?;
        let size = body.len() as u64;
        let part = match input.range {
            Some(range) => range.check(size).map_err(|_| s3_error!(InvalidRange))?,
            None => 0..size,
        };
        let content_range = input
            .range
            .map(|_| format!("bytes {}-{}/{size}", part.start, part.end - 1));
        let body = body.slice(part.start as usize..part.end as usize);
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(body.len() as i64),
            content_range,
            body: Some(StreamingBlob::from(s3s::Body::from(body))),
            e_tag: Some(etag),
            last_modified: now(),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let (body, etag) = self.find(&input.bucket, &input.key, input.if_match.as_ref())?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(body.len() as i64),
            e_tag: Some(etag),
            last_modified: now(),
            ..HeadObjectOutput::default()
        }))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        if input.bucket != BUCKET {
            return Err(s3_error!(NoSuchBucket));
        }
        let there = self.0.lock().unwrap().objects.contains_key(&input.key);
        if there && input.if_none_match == Some(ETagCondition::Any) {
            return Err(s3_error!(PreconditionFailed));
        }
        let body = match input.body {
            Some(body) => http_body_util::BodyExt::collect(s3s::Body::from(body))
                .await
                .map_err(|_| s3_error!(IncompleteBody))?
                .to_bytes(),
            None => Bytes::new(),
        };
        self.put(&input.key, body);
        let (_, etag) = self.find(&input.bucket, &input.key, None)?;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(etag),
            ..PutObjectOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        if input.bucket != BUCKET {
            return Err(s3_error!(NoSuchBucket));
        }
        let prefix = input.prefix.unwrap_or_default();
        let most = input.max_keys.unwrap_or(1000).clamp(0, 1000) as usize;
        let inner = self.0.lock().unwrap();
        let after = match inner.habit {
            Habit::GoesOn | Habit::ByFolder => input.continuation_token.or(input.start_after),
            Habit::StartsOver => input.continuation_token,
            Habit::NeverMoves => None,
        };
        let after = after.unwrap_or_default();
        let by_folder = inner.habit == Habit::ByFolder;
        let place = |key: &str| {
            if by_folder {
                key.replace('/', "\0")
            } else {
                key.to_owned()
            }
        };
        let mut found: Vec<_> = inner
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && place(key) > place(&after))
            .collect();
        found.sort_by_key(|(key, _)| place(key));
        let mut found = found.into_iter();
        let page: Vec<Object> = found
            .by_ref()
            .take(most)
            .map(|(key, (body, etag))| Object {
                key: Some(key.clone()),
                size: Some(body.len() as i64),
                e_tag: Some(ETag::Strong(etag.clone())),
                last_modified: now(),
                ..Object::default()
            })
            .collect();
        let next = found.next().and_then(|_| page.last()?.key.clone());
        Ok(S3Response::new(ListObjectsV2Output {
            is_truncated: Some(next.is_some()),
            next_continuation_token: next,
            key_count: Some(page.len() as i32),
            contents: Some(page),
            ..ListObjectsV2Output::default()
        }))
    }
}
