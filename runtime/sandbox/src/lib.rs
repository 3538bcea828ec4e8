//! The sandbox guests run in; the one address of wasmtime
