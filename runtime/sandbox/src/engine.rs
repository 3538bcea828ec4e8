use crate::bounds::{MAX_MEMORIES, MAX_TABLES};
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use frostline_tensor::Cause;
use std::time::Duration;
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, RegallocAlgorithm,
};

/// Maximum number of core instances of a guest, equal to the number of tables.
const MAX_CORE_INSTANCES: u32 = MAX_TABLES;

/// Stack size of a guest in bytes, shared by host and Wasm frames. Reserves address space, which is committed
/// on use.
const STACK_BYTES: usize = 1 << 20;

/// Part of a stack in bytes that is overwritten with zeros after a call instead of returned to the system. Most
/// calls use less.
const RESIDENT_STACK_BYTES: usize = 16 << 10;

/// Interval at which guest code is interrupted to switch between guests and to check deadlines. Shorter intervals
/// cause more switches. Calls can exceed their deadline by up to one interval.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Creates an engine with the limits of [`SandboxConfig`] and starts the thread that advances the epoch.
pub(crate) fn start(config: &SandboxConfig) -> Result<Engine, SandboxError> {
    let engine = Engine::new(&engine_config(config)).map_err(|error| {
        SandboxError::host(format!(
            "cannot set up the Wasm engine: {error:#}; with little address space, lower `instances` or \
             `memory_reservation`"
        ))
    })?;
    start_ticking(&engine)?;
    Ok(engine)
}

/// Creates an engine without an instance pool for compiling. The code runs on the engine of [`start`].
/// Compiles on a single core so that a CPU time limit is meaningful.
pub(crate) fn compile_only(memory_reservation: u64) -> wasmtime::Result<Engine> {
    let mut engine = code_config(memory_reservation);
    engine.parallel_compilation(false);
    Engine::new(&engine)
}

fn engine_config(config: &SandboxConfig) -> Config {
    let mut engine = code_config(config.memory_reservation);
    engine.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(config)));
    // Otherwise, the pages of a deep recursion belong to the pool forever.
    engine.async_stack_zeroing(true);
    engine
}

/// Returns the settings that affect compiled code.
fn code_config(memory_reservation: u64) -> Config {
    let mut engine = Config::new();
    if cfg!(debug_assertions) {
        // Cranelift itself is not optimized in debug builds, so optimizing guests costs the tests more than their speed is worth.
        engine.cranelift_opt_level(OptLevel::None);
        engine.cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    }
    engine.wasm_component_model(true);
    // Guests must compute the same results on every host.
    engine.relaxed_simd_deterministic(true);
    engine.epoch_interruption(true);
    engine.max_wasm_stack(STACK_BYTES / 2);
    engine.async_stack_size(STACK_BYTES);
    engine.memory_reservation(memory_reservation);
    engine
}

fn pool(config: &SandboxConfig) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(config.instances)
        .total_core_instances(config.instances.saturating_mul(MAX_CORE_INSTANCES))
        .max_core_instances_per_component(MAX_CORE_INSTANCES)
        .total_memories(config.instances)
        .max_memories_per_component(MAX_MEMORIES)
        .max_memory_size(config.memory_bytes)
        .total_tables(config.instances.saturating_mul(MAX_TABLES))
        .max_tables_per_component(MAX_TABLES)
        .table_elements(config.table_elements)
        .total_stacks(config.instances)
        .async_stack_keep_resident(RESIDENT_STACK_BYTES);
    pool
}

/// Advances the epoch every [`TICK`] until the engine is dropped.
fn start_ticking(engine: &Engine) -> Result<(), SandboxError> {
    let weak = engine.weak();
    let thread = std::thread::Builder::new().name("guest-ticks".to_owned());
    #[expect(
        clippy::disallowed_methods,
        reason = "an engine advances epochs on a single thread"
    )]
    let started = thread.spawn(move || {
        while weak.upgrade().map(|engine| engine.increment_epoch()).is_some() {
            std::thread::sleep(TICK);
        }
    });
    started.map(drop).map_err(|error| {
        SandboxError::host(Cause::with_message(
            "cannot start the thread that interrupts guests",
            error,
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_generate_compatible_code() {
        let config = SandboxConfig {
            instances: 1,
            ..SandboxConfig::default()
        };
        let runs = Engine::new(&engine_config(&config)).unwrap();
        let compiles = compile_only(config.memory_reservation).unwrap();
        let hash = |engine: &Engine| {
            use std::hash::{DefaultHasher, Hash, Hasher};
            let mut hasher = DefaultHasher::new();
            engine.precompile_compatibility_hash().hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&runs), hash(&compiles));
        assert_ne!(hash(&runs), hash(&compile_only(0).unwrap()));
    }
}
