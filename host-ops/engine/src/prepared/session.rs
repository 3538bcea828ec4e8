//! Sessions that save and open prepared stages.

use super::store::{NETWORK, WEIGHTS};
use super::trial::try_out;
use crate::session::builder_for;
use crate::{EngineError, Interrupt, Session, SessionOptions};
use std::path::Path;

impl Session {
    /// Saves `model` to `folder` for [`Session::open_prepared`]. The network is optimized for `options` and
    /// this processor, and a separate file contains the weights in kernel layout. Both forms are executed to
    /// compare their outputs.
    ///
    /// # Errors
    /// Returns the errors of [`Session::open_until`], and [`EngineError::Model`] if the folder cannot be
    /// written or the outputs differ.
    pub(crate) fn prepare(
        model: &[u8],
        folder: &Path,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        let entries = [
            ("session.optimized_model_external_initializers_file_name", WEIGHTS),
            (
                "session.optimized_model_external_initializers_min_size_in_bytes",
                "1024",
            ),
            ("session.save_external_prepacked_constant_initializers", "1"),
        ];
        let mut builder = builder_for(model, options)?
            .with_optimized_model_path(folder.join(NETWORK))
            .map_err(EngineError::internal("prepare a session"))?;
        for (key, value) in entries {
            builder = builder
                .with_config_entry(key, value)
                .map_err(EngineError::internal("prepare a session"))?;
        }
        let expected = try_out(&mut Self::load(builder, model, options, interrupt)?, interrupt)?;
        let prepared = try_out(&mut Self::open_prepared(folder, options, interrupt)?, interrupt)?;
        if prepared != expected {
            let reason = "the prepared form computes a different output".to_owned();
            return Err(EngineError::Model { reason });
        }
        Ok(())
    }

    /// Opens the network that [`Session::prepare`] saved to `folder`. The weights are mapped from their file,
    /// so processes share their memory, and the system can reclaim it.
    ///
    /// # Errors
    /// Returns the errors of [`Session::open_until`].
    pub(crate) fn open_prepared(
        folder: &Path,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, EngineError> {
        let file = folder.join(NETWORK);
        // Large weights are in another file.
        let model = std::fs::read(&file).map_err(|error| EngineError::Model {
            reason: format!("cannot read the prepared network: {error}"),
        })?;
        Self::commit(builder_for(&model, options)?, options, interrupt, |builder| {
            builder.commit_from_file(&file)
        })
    }
}
