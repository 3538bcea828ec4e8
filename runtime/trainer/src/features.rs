//! Rows at the freeze cut that are kept: from one epoch to the next, and from one job to the next.

use crate::compute::blocking;
use crate::named_store::NamedStore;
use crate::pipeline::{FeedPlan, Part};
use crate::recipe::Views;
use crate::{Event, Events, Job, TrainerError};
use frostline_client::{Samples, Source};
use frostline_engine::library_version;
use frostline_features::{Cache, Form, Found, Row, RowKey, RowKeys, Subject};
use frostline_tensor::Tensor;
use frostline_wire::{Encoding, ObjectInfo, Values};
use serde_json::json;
use std::sync::Arc;

/// What travelling may do to a row; each takes in those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rounding {
    /// Nothing.
    Exact,
    /// Half precision.
    Half,
    /// Eight bits.
    Eight,
}

impl Rounding {
    pub(crate) fn of(encoding: Encoding) -> Self {
        match encoding.values {
            Values::F32 | Values::U8 => Self::Exact,
            Values::F16 => Self::Half,
            Values::Int8 => Self::Eight,
        }
    }

    /// How rows are kept: no less exact than they travelled.
    fn form(self) -> Form {
        match self {
            Self::Half => Form::F16,
            Self::Exact | Self::Eight => Form::F32,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Half => "f16",
            Self::Eight => "int8",
        }
    }
}

/// What the rows of a job depend on, beside samples and views.
#[derive(Clone)]
pub(crate) struct Making {
    /// SHA-256 of the layers up to the freeze cut; empty where nothing is frozen.
    pub(crate) layers: String,
    /// What the guest is told.
    pub(crate) parameters: String,
    /// Of one sample at the freeze cut.
    pub(crate) shape: Vec<usize>,
}

/// The rows of a job that are kept.
pub(crate) struct Features {
    kept: Arc<NamedStore>,
    root: String,
    /// Tells objects without an etag from those of other jobs.
    run: [u8; 16],
    rounding: Rounding,
    views: Views,
}

/// How many of the rows that a job uses are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) kept: u64,
    /// Those that can be kept.
    pub(crate) rows: u64,
    /// Bytes these take on disk.
    pub(crate) bytes: u64,
    /// Whether each of its training samples looks the same again in a later epoch.
    pub(crate) repeats: bool,
}

impl Features {
    /// Opens the store for rows that are made so and travel with this much `rounding`; made where there is none, unless it has to be `there`. What
    /// goes wrong is told, and the job does without.
    pub(crate) async fn open(
        job: &Job,
        making: Making,
        rounding: Rounding,
        plan: &FeedPlan,
        events: &Events,
        there: bool,
    ) -> Result<Option<Arc<Self>>, TrainerError> {
        let Some(cache) = job.features.clone() else {
            return Ok(None);
        };
        if let Some(why) = too_large(&making.shape, plan) {
            if !there {
                events(Event::Warning { message: why });
            }
            return Ok(None);
        }
        let (subject, row) = subject(job, making, rounding);
        let offered = match &job.team {
            Some(team) => team.offers(&subject.name(&row), events).await,
            None => false,
        };
        let (root, plan, told) = (job.spec.data.clone(), plan.clone(), Arc::clone(events));
        let there = there && !offered;
        let open = move || {
            Ok(Self::open_in(
                &cache,
                root,
                (&subject, &row),
                rounding,
                &plan,
                told,
                there,
            ))
        };
        match blocking(open).await? {
            Ok(features) => {
                let features = features.map(Arc::new);
                if let (Some(features), Some(team)) = (&features, &job.team) {
                    team.take(features.kept(), events).await;
                }
                Ok(features)
            }
            Err(why) => {
                let message = format!("rows are not kept for later epochs: {why}");
                events(Event::Warning { message });
                Ok(None)
            }
        }
    }

    fn open_in(
        cache: &Cache,
        root: String,
        (subject, row): (&Subject, &Row),
        rounding: Rounding,
        plan: &FeedPlan,
        events: Events,
        there: bool,
    ) -> Result<Option<Self>, String> {
        if there && !cache.has(subject, row) {
            return Ok(None);
        }
        // Whoever only looks makes no room.
        let rows = if there { 0 } else { rows_of(plan) };
        let stopped = Arc::new(move |why: String| {
            let message = format!("no more rows are kept for later epochs: {why}");
            events(Event::Warning { message });
        });
        let store = cache.open(subject, row, rows, stopped);
        let store = store.map_err(|error| error.to_string())?;
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|error| error.to_string())?;
        Ok(Some(Self {
            kept: Arc::new(NamedStore::new(store, subject, row)),
            root,
            run,
            rounding,
            views: plan.views,
        }))
    }

    /// For whoever shares them.
    pub(crate) fn kept(&self) -> &Arc<NamedStore> {
        &self.kept
    }

    /// The keys of `samples` as they come from `source`; `None` where such rows are not kept: because they never look like that again, or travel
    /// with more rounding than the store takes.
    pub(crate) fn keys(&self, source: &Source, samples: &[ObjectInfo]) -> Option<Vec<RowKey>> {
        if source.view.is_some() && !self.views.repeat() {
            return None;
        }
        let keys = RowKeys::new(&self.root, source.view.as_ref(), self.run);
        Some(samples.iter().map(|sample| keys.of(&sample.sample)).collect())
    }

    /// Whether rows from `source` may be kept.
    pub(crate) fn takes(&self, source: &Source) -> bool {
        Rounding::of(source.encoding) <= self.rounding
    }

    /// Those of `keys` that are there.
    pub(crate) async fn find(self: &Arc<Self>, keys: Arc<[RowKey]>) -> Result<Found, TrainerError> {
        let features = Arc::clone(self);
        blocking(move || Ok(features.kept.store.read(&keys))).await
    }

    pub(crate) fn keep(&self, keys: Vec<Option<RowKey>>, rows: Tensor) {
        self.kept.store.keep(keys, rows);
    }

    /// Tells what did not go as it should, if anything: of that the job is only slower.
    pub(crate) fn tell(&self, events: &Events) {
        for message in self.kept.store.news() {
            events(Event::Warning { message });
        }
    }

    /// Takes in what other jobs kept meanwhile.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<(), TrainerError> {
        let features = Arc::clone(self);
        // A store that cannot be read again is as it was.
        blocking(move || {
            let _ = features.kept.store.refresh();
            Ok(())
        })
        .await
    }

    /// Bytes of `rows` rows in memory.
    pub(crate) fn memory(&self, rows: usize) -> u64 {
        self.kept.store.row_memory().saturating_mul(rows as u64)
    }

    /// How much of what the batches of `plan` need is there.
    pub(crate) async fn coverage(self: &Arc<Self>, plan: &FeedPlan) -> Result<Coverage, TrainerError> {
        let (features, plan) = (Arc::clone(self), plan.clone());
        blocking(move || Ok(features.covers(&plan))).await
    }

    fn covers(&self, plan: &FeedPlan) -> Coverage {
        let count = |samples: &Samples, view| {
            let keys = RowKeys::new(&self.root, view, self.run);
            let all = (0..samples.len()).filter_map(|index| samples.get(index));
            let all: Vec<RowKey> = all.map(|sample| keys.of(&sample.sample)).collect();
            self.kept.store.count(all.iter()) as u64
        };
        let views = plan.views.kept(plan.epochs);
        let trained = views
            .iter()
            .map(|view| count(&plan.train, view.as_ref()))
            .sum::<u64>();
        Coverage {
            kept: trained + count(&plan.validation, None),
            rows: rows_of(plan),
            bytes: self.kept.store.disk_bytes(rows_of(plan)),
            repeats: plan.views.repeat(),
        }
    }
}

/// Why rows of this shape are not kept, where two batches of them do not fit the memory of `plan`: a batch whose rows were kept is read as a whole.
fn too_large(shape: &[usize], plan: &FeedPlan) -> Option<String> {
    let row = shape.iter().map(|dim| *dim as u64).fold(4, u64::saturating_mul);
    let rows = plan.train.len().max(plan.validation.len()).min(plan.batch);
    let batch = row.saturating_mul(rows as u64);
    (batch.saturating_mul(2) > plan.memory_bytes).then(|| {
        format!(
            "rows at the freeze cut are not kept for later epochs: a batch of them takes {batch} bytes, and two have to fit --memory, which is {} bytes",
            plan.memory_bytes
        )
    })
}

/// What rows of a job depend on, and what they are.
fn subject(job: &Job, making: Making, rounding: Rounding) -> (Subject, Row) {
    let subject = Subject {
        model: job.model_name().clone(),
        freeze: job.freeze.clone(),
        data: job.spec.data.clone(),
        made_by: json!({
            "layers": making.layers,
            "guest": hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&job.guest.bytes)),
            "parameters": making.parameters,
            "rounding": rounding.name(),
            "precision": job.spec.terms.precision,
            "fixed_batch": job.spec.terms.fixed_batch,
            "library": library_version().unwrap_or_default(),
            "device": job.device.to_string(),
        }),
    };
    let row = Row {
        shape: making.shape,
        form: rounding.form(),
    };
    (subject, row)
}

/// Rows that the batches of `plan` use and that can be kept.
pub(crate) fn rows_of(plan: &FeedPlan) -> u64 {
    let of = |part| plan.samples(part).len() as u64;
    plan.views.kept(plan.epochs).len() as u64 * of(Part::Train) + of(Part::Validation)
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Features")
            .field("root", &self.root)
            .field("rounding", &self.rounding)
            .finish_non_exhaustive()
    }
}
