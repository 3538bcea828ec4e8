//! Hostile guests and their expected endings: one table, which the sandbox's tests use with a fake host, and the isolation
//! suite with a real one.
//!
//! An ending is a fragment of the message that the tenant reads, so the table holds for both. The caller sets the limits;
//! an ending names the limit that must be low enough to be exceeded.

mod uploads;

pub use uploads::slow_to_compile;

/// A hostile guest.
#[derive(Debug, Clone, Copy)]
pub struct Behavior {
    /// Its name in reports; a compiled guest's file is `<name>.wasm`.
    pub name: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Where its bytes come from.
    pub guest: Source,
    /// How it must end.
    pub ends: Ending,
}

/// Where a guest's bytes come from.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// `cargo xtask guests` compiles it from `guest/hostile/examples`.
    Compiled,
    /// This function creates it.
    Made(fn() -> Vec<u8>),
}

/// How the use of a guest must end, with a fragment of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its upload is refused.
    Refused(&'static str),
    /// Its description is refused or times out.
    NotDescribed(&'static str),
    /// Its extraction exceeds the limit with this name.
    Limit(&'static str),
    /// Its call traps.
    Trapped(&'static str),
    /// Its result is refused.
    BadAnswer(&'static str),
    /// A host call is refused, and the guest returns the error.
    Failed(&'static str),
    /// It is harmless and served.
    Served,
}

const fn compiled(name: &'static str, does: &'static str, ends: Ending) -> Behavior {
    Behavior {
        name,
        does,
        guest: Source::Compiled,
        ends,
    }
}

const fn made(name: &'static str, does: &'static str, make: fn() -> Vec<u8>, ends: Ending) -> Behavior {
    Behavior {
        name,
        does,
        guest: Source::Made(make),
        ends,
    }
}

/// The table.
pub const BEHAVIORS: &[Behavior] = {
    use Ending::{BadAnswer, Failed, Limit, NotDescribed, Refused, Served, Trapped};
    &[
        // Time.
        compiled("spin", "computes without end", Limit("CPU time")),
        compiled(
            "spin-at-start",
            "computes without end in its start function",
            NotDescribed("CPU time"),
        ),
        compiled(
            "spin-in-describe",
            "computes without end in `describe`",
            NotDescribed("CPU time"),
        ),
        compiled(
            "ask-trifles",
            "makes small host calls without end",
            Limit("CPU time"),
        ),
        // Memory and handles.
        compiled("recurse", "calls itself without end", Trapped("")),
        compiled("grow", "takes memory without end", Limit("guest memory")),
        compiled("leak", "keeps every tensor it makes", Limit("tensor memory")),
        compiled("leak-small", "keeps every handle it gets", Limit("handle")),
        compiled(
            "same-megabyte",
            "passes one megabyte ten thousand times in one call",
            Trapped(""),
        ),
        compiled(
            "huge-pixels",
            "asks for images of four billion pixels a side",
            Failed(""),
        ),
        // Tensors.
        compiled(
            "lie-about-shape",
            "makes a million elements of four bytes",
            Trapped(""),
        ),
        compiled(
            "overflow-shape",
            "makes a tensor whose elements no machine can count",
            Trapped(""),
        ),
        compiled(
            "many-dimensions",
            "makes a tensor of a million dimensions",
            Trapped("dimensions"),
        ),
        compiled("wrong-type", "returns bytes for f32", BadAnswer("u8")),
        compiled("no-numbers", "returns activations that are no numbers", Served),
        compiled("wrong-input-type", "gives a network bytes for f32", Failed("")),
        compiled(
            "same-tensor-twice",
            "passes one tensor as two inputs",
            Trapped(""),
        ),
        // Answers.
        compiled("too-few-rows", "returns a row too few", BadAnswer("rows")),
        compiled("too-many-rows", "returns a row too many", BadAnswer("rows")),
        compiled("return-nothing", "returns no rows", BadAnswer("0 rows")),
        compiled(
            "wrong-width",
            "returns rows of another width",
            BadAnswer("per sample"),
        ),
        compiled(
            "return-too-much",
            "returns megabytes for every sample",
            Limit("output size"),
        ),
        compiled(
            "lie-about-failures",
            "reports failures of samples that were not requested",
            BadAnswer("sample 1000000"),
        ),
        compiled(
            "hide-errors",
            "reports its samples as broken when the host fails",
            Served,
        ),
        compiled("trap", "panics", Trapped("no activations")),
        // Names and words.
        compiled("long-names", "calls itself a megabyte", Served),
        compiled(
            "serve-other-cuts",
            "serves a cut that is not there",
            NotDescribed("not a cut of the model"),
        ),
        compiled(
            "serve-endless-shape",
            "serves activations of an unbounded shape",
            NotDescribed("activation shape"),
        ),
        compiled("long-error", "fails with sixteen megabytes of words", Failed("")),
        compiled("long-log-line", "logs one line of sixteen megabytes", Served),
        compiled("flood-log", "logs without end", Served),
        // What it may not reach.
        compiled(
            "load-bytes",
            "brings a model of its own",
            Failed("cannot be loaded from bytes"),
        ),
        compiled(
            "unknown-graph",
            "asks for other graphs than its extraction's",
            Failed("invalid stage"),
        ),
        compiled(
            "read-in-describe",
            "reads while it describes itself",
            NotDescribed("only available in `extract`"),
        ),
        compiled("read-outside", "reads outside of the data root", Failed("")),
        compiled(
            "read-again",
            "reads one object a million times",
            Limit("object read"),
        ),
        compiled(
            "ask-sizes",
            "asks for one size a million times",
            Limit("object read"),
        ),
        compiled(
            "load-again",
            "loads its images a million times",
            Limit("object read"),
        ),
        compiled(
            "read-too-much",
            "reads whole objects without end",
            Limit("object read size"),
        ),
        // Uploads.
        compiled("other-world", "wants a network connection", Refused("sockets")),
        made(
            "million-functions",
            "has a million functions",
            uploads::million_functions,
            Refused("functions"),
        ),
        made(
            "endless-locals",
            "has functions of a billion local variables",
            uploads::endless_locals,
            Refused("local variables"),
        ),
        made(
            "many-tables",
            "has a thousand tables",
            uploads::many_tables,
            Refused("tables"),
        ),
        made(
            "many-memories",
            "has a thousand memories",
            uploads::many_memories,
            Refused("memories"),
        ),
        made(
            "huge-memory",
            "begins with four gigabytes of memory",
            uploads::huge_memory,
            Refused("bytes of initial memory"),
        ),
        made(
            "huge-table",
            "begins with a table of ten million entries",
            uploads::huge_table,
            Refused("initial table entries"),
        ),
        made(
            "many-globals",
            "has a million globals",
            uploads::many_globals,
            Refused("globals"),
        ),
        made(
            "many-segments",
            "has a hundred thousand data segments",
            uploads::many_segments,
            Refused("data segments"),
        ),
        made(
            "many-exports",
            "exports one function a hundred thousand times",
            uploads::many_exports,
            Refused("exports"),
        ),
        made(
            "many-imports",
            "imports a hundred thousand functions",
            uploads::many_imports,
            Refused("imports"),
        ),
        made(
            "many-instances",
            "has ten thousand instances",
            uploads::many_instances,
            Refused("instances"),
        ),
        made(
            "nested-components",
            "is a component in a component, a thousand deep",
            uploads::nested_components,
            Refused("nested components"),
        ),
        made(
            "nested-types",
            "has types in types, a hundred thousand deep",
            uploads::nested_types,
            Refused("nested components"),
        ),
        made(
            "nested-interface",
            "is a module whose interface has types in types",
            uploads::nested_interface,
            Refused("nested components"),
        ),
        made(
            "much-debugging",
            "carries eight megabytes of names",
            uploads::much_debugging,
            Refused("bytes of custom sections"),
        ),
        made(
            "wants-files",
            "is a module that wants files of WASI",
            uploads::wants_files,
            Refused("wasi_snapshot_preview1.path_open"),
        ),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_there_once_and_what_is_made_is_not_huge() {
        let names: BTreeSet<_> = BEHAVIORS.iter().map(|behavior| behavior.name).collect();
        assert_eq!(names.len(), BEHAVIORS.len());
        for behavior in BEHAVIORS {
            if let Source::Made(make) = behavior.guest {
                let bytes = make().len();
                assert!(
                    (8..16 << 20).contains(&bytes),
                    "{}: {bytes} bytes",
                    behavior.name
                );
            }
        }
    }
}
