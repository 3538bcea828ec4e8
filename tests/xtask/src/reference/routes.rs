//! Generates the reference of HTTP routes from the calls that build the routers and the doc comments of
//! handlers.

use super::{doc, parse, row};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprMethodCall, Item, Lit, Path};

const HTTP: &str = "runtime/server/src/http";

/// Routers: a title with the clients, the folder below [`HTTP`] and the function that builds the routes.
const ROUTERS: [(&str, &str, &str); 3] = [
    ("Tenants", "", "routes"),
    (
        "Admins, on the admin socket or `admin_listen`",
        "/admin",
        "admin_routes",
    ),
    ("Metrics, at `metrics_listen`", "", "metrics_routes"),
];

#[derive(Debug, PartialEq, Eq)]
struct Route {
    path: String,
    method: String,
    /// Path of the handler such as `tenants::add`. `None` for closures.
    handler: Option<String>,
}

pub(super) fn table() -> Result<String> {
    let mut page = "All routes of a host. Routes below `/v1` require a tenant's token. [The HTTP interface](../../server/docs/http.md) explains \
        requests, answers and errors.\n"
        .to_owned();
    for (title, folder, function) in ROUTERS {
        let folder = format!("{HTTP}{folder}");
        let mut comments = Comments::default();
        page.push_str(&format!("\n## {title}\n\n| request | description |\n|---|---|\n"));
        for route in routes(&parse(&format!("{folder}/mod.rs"))?, function)? {
            let about = match &route.handler {
                Some(handler) => comments.of(&folder, handler)?,
                None => "200 while the host runs".to_owned(),
            };
            page.push_str(&row(&[&format!("`{} {}`", route.method, route.path), &about]));
        }
    }
    Ok(page)
}

fn routes(file: &syn::File, function: &str) -> Result<Vec<Route>> {
    let mut functions = file.items.iter().filter_map(|item| match item {
        Item::Fn(item) => Some(item),
        _ => None,
    });
    let found = functions.find(|item| item.sig.ident == function);
    let mut reader = Reader::default();
    reader.visit_item_fn(found.with_context(|| format!("cannot find function {function}"))?);
    Ok(reader.0)
}

#[derive(Default)]
struct Reader(Vec<Route>);

impl<'ast> Visit<'ast> for Reader {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        // Visit the receiver first, so that routes are in source order.
        visit::visit_expr_method_call(self, call);
        let mut arguments = call.args.iter();
        if call.method == "route"
            && let (Some(Expr::Lit(path)), Some(methods)) = (arguments.next(), arguments.next())
            && let Lit::Str(path) = &path.lit
        {
            self.methods(&path.value(), methods);
        }
    }
}

impl Reader {
    /// Adds the routes of a method router such as `get(show).put(store)`.
    fn methods(&mut self, path: &str, methods: &Expr) {
        let (method, handlers) = match methods {
            Expr::MethodCall(call) => {
                self.methods(path, &call.receiver);
                (call.method.to_string(), &call.args)
            }
            Expr::Call(ExprCall { func, args, .. }) => match &**func {
                Expr::Path(method) => (name(&method.path), args),
                _ => return,
            },
            _ => return,
        };
        let handler = match handlers.first() {
            Some(Expr::Path(handler)) => Some(name(&handler.path)),
            _ => None,
        };
        self.0.push(Route {
            path: path.to_owned(),
            method: method.to_uppercase(),
            handler,
        });
    }
}

fn name(path: &Path) -> String {
    let segments: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
    segments.join("::")
}

/// Parsed files with handlers.
#[derive(Default)]
struct Comments(BTreeMap<String, syn::File>);

impl Comments {
    fn of(&mut self, folder: &str, handler: &str) -> Result<String> {
        let (module, function) = handler.rsplit_once("::").unwrap_or(("mod", handler));
        let path = format!("{folder}/{module}.rs");
        let file = match self.0.entry(path.clone()) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(parse(&path)?),
        };
        let mut functions = file.items.iter().filter_map(|item| match item {
            Item::Fn(item) => Some(item),
            _ => None,
        });
        let found = functions.find(|item| item.sig.ident == function);
        let about = doc(&found
            .with_context(|| format!("cannot find {function} in {path}"))?
            .attrs);
        if about.is_empty() {
            bail!("{path}: {function} answers a route and has no comment for the reference");
        }
        Ok(about.trim_end_matches('.').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_in_the_order_they_are_written() {
        let text = "fn routes() { Router::new().route(\"/a\", get(b::c).put(b::d)).merge(x).route(\"/e\", get(|| async {})) }";
        let route = |path: &str, method: &str, handler: Option<&str>| Route {
            path: path.to_owned(),
            method: method.to_owned(),
            handler: handler.map(str::to_owned),
        };
        let expected = [
            route("/a", "GET", Some("b::c")),
            route("/a", "PUT", Some("b::d")),
            route("/e", "GET", None),
        ];
        assert_eq!(
            routes(&syn::parse_file(text).unwrap(), "routes").unwrap(),
            expected
        );
    }
}
