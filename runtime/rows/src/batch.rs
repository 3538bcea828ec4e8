use crate::{RowCache, RowsError};
use frostline_features::RowKey;
use frostline_tensor::{Shape, ShapeError, Tensor};
use std::sync::Arc;

/// Rows of a batch: fetched ones are activations at the split, cached ones at the freeze cut.
pub struct BatchRows {
    fetched: Option<Tensor>,
    cached: Option<Tensor>,
    /// Origins of all rows, in order. Not empty.
    origins: Vec<Origin>,
    cache: Option<Arc<RowCache>>,
}

/// Origin of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Cached,
    /// Fetched, with the cache key if the row can be cached.
    Fetched(Option<RowKey>),
}

/// Rows to cache once the caller has used them.
pub struct PendingRows {
    keys: Vec<Option<RowKey>>,
    cache: Option<Arc<RowCache>>,
}

impl BatchRows {
    /// Combines rows in the order of `origins`. Returns `None` if `origins` is empty.
    pub(crate) fn new(
        fetched: Option<Tensor>,
        cached: Option<Tensor>,
        origins: Vec<Origin>,
        cache: Option<Arc<RowCache>>,
    ) -> Option<Self> {
        (!origins.is_empty()).then_some(Self {
            fetched,
            cached,
            origins,
            cache,
        })
    }

    /// Creates a batch from fetched rows, without caching.
    pub fn plain(rows: Tensor) -> Self {
        Self {
            origins: vec![Origin::Fetched(None); rows.rows().unwrap_or(0)],
            fetched: Some(rows),
            cached: None,
            cache: None,
        }
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.origins.len()
    }

    /// Number of cached rows.
    pub fn cached_count(&self) -> usize {
        self.origins
            .iter()
            .filter(|origin| **origin == Origin::Cached)
            .count()
    }

    /// Positions of the fetched rows in the batch.
    pub fn fetched_positions(&self) -> impl Iterator<Item = usize> + '_ {
        let origins = self.origins.iter().enumerate();
        origins.filter_map(|(position, origin)| matches!(origin, Origin::Fetched(_)).then_some(position))
    }

    /// Rows fetched at the split.
    pub fn fetched(&self) -> Option<&Tensor> {
        self.fetched.as_ref()
    }

    /// Removes and returns the rows fetched at the split, for a caller that passes their activations to
    /// [`join`](Self::join).
    pub fn take_fetched(&mut self) -> Option<Tensor> {
        self.fetched.take()
    }

    /// Returns all rows at the freeze cut in the order of the batch, in `f32`. `middle` gets the fetched rows and
    /// computes their activations at the freeze cut in `f32`.
    ///
    /// # Errors
    /// Returns the error of `middle`, or [`RowsError::Shape`] if cached rows have no valid shape.
    pub fn join<E: From<RowsError>>(
        self,
        middle: impl FnOnce(Option<Tensor>) -> Result<Option<Tensor>, E>,
    ) -> Result<(Tensor, PendingRows), E> {
        let keys = self.origins.iter().map(|origin| match origin {
            Origin::Cached => None,
            Origin::Fetched(key) => *key,
        });
        let mut keys: Vec<Option<RowKey>> = keys.collect();
        let mut rows = match (middle(self.fetched)?, self.cached) {
            (Some(rows), None) | (None, Some(rows)) => rows,
            (Some(fetched), Some(cached)) => {
                interleave(&fetched, &cached, &self.origins).map_err(RowsError::from)?
            }
            (None, None) => return Err(RowsError::Ended { part: "pipeline" }.into()),
        };
        if let Some(cache) = &self.cache {
            // All passes get the same values, also before the rows are cached.
            cache.store().round(&mut keys, &mut rows);
        }
        let cache = self.cache;
        Ok((rows, PendingRows { keys, cache }))
    }
}

impl PendingRows {
    /// Queues the rows for the cache, if there is one.
    pub fn cache(self, rows: Tensor) {
        if let Some(cache) = self.cache
            && self.keys.iter().any(Option::is_some)
        {
            cache.store().keep(self.keys, rows);
        }
    }
}

/// Merges the rows of both tensors in the order of `origins`.
fn interleave(fetched: &Tensor, cached: &Tensor, origins: &[Origin]) -> Result<Tensor, ShapeError> {
    let shape: Shape = cached.shape().row()?;
    let width = shape.elements()?.max(1);
    let mut fetched = fetched.as_f32().unwrap_or_default().chunks_exact(width);
    let mut cached = cached.as_f32().unwrap_or_default().chunks_exact(width);
    let mut values = Vec::with_capacity(origins.len() * width);
    for origin in origins {
        let next = match origin {
            Origin::Cached => cached.next(),
            Origin::Fetched(_) => fetched.next(),
        };
        values.extend_from_slice(next.unwrap_or_default());
    }
    Tensor::f32(shape.batched(origins.len()), values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> Option<Tensor> {
        (!values.is_empty()).then(|| Tensor::f32([values.len(), 1], values.to_vec()).unwrap())
    }

    #[test]
    fn rows_come_out_in_the_order_of_their_origins() {
        let twice = |rows: Option<Tensor>| {
            Ok::<_, RowsError>(rows.map(|rows| {
                let doubled = rows.as_f32().unwrap().iter().map(|value| value * 2.0).collect();
                Tensor::f32(rows.shape().clone(), doubled).unwrap()
            }))
        };
        let kept = Origin::Cached;
        let new = Origin::Fetched(None);
        for (fetched, stored, origins, expected) in [
            (
                &[1.0, 2.0][..],
                &[10.0][..],
                vec![new, kept, new],
                &[2.0, 10.0, 4.0][..],
            ),
            (&[1.0], &[10.0, 20.0], vec![kept, kept, new], &[10.0, 20.0, 2.0]),
            (&[], &[10.0], vec![kept], &[10.0]),
            (&[3.0], &[], vec![new], &[6.0]),
        ] {
            let joined = BatchRows::new(rows(fetched), rows(stored), origins, None).unwrap();
            let (tensor, _) = joined.join(twice).unwrap();
            assert_eq!(tensor.as_f32(), Some(expected));
        }
        assert!(BatchRows::new(None, None, Vec::new(), None).is_none());
    }
}
