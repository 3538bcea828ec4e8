//! The compute side: dataset, pipeline, training, export
