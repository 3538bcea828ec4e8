//! Generates the reference of HTTP routes from the server's table of routes and the doc comments of handlers.

use super::{doc, parse, row};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use syn::Item;

const HTTP: &str = "runtime/server/src/http";

/// Sections with their routes, identified by the field `access`.
const SECTIONS: [(&str, &[&str]); 3] = [
    ("Tenants", &["tenant", "anyone"]),
    ("Admins, on the admin socket or `admin_listen`", &["admin"]),
    ("Metrics, at `metrics_listen`", &["operator"]),
];

/// Reads the output of `frostline reference routes`: an object for each route.
pub(super) fn read(routes: &str) -> Result<Vec<BTreeMap<String, String>>> {
    serde_json::from_str(routes).context("routes must be JSON")
}

/// Generates the page. `routes` is the output of `frostline reference routes`.
pub(super) fn table(routes: &str) -> Result<String> {
    let routes = read(routes)?;
    let mut page = "All routes of a host. Routes below `/v1` require a tenant's token. [The HTTP interface](../../server/docs/http.md) explains \
        requests, answers and errors. The OpenAPI files [openapi-tenants.json](openapi-tenants.json), \
        [openapi-admins.json](openapi-admins.json) and [openapi-metrics.json](openapi-metrics.json) describe the same routes for programs.\n"
        .to_owned();
    let mut comments = Comments::default();
    for (title, accesses) in SECTIONS {
        page.push_str(&format!("\n## {title}\n\n| request | description |\n|---|---|\n"));
        for route in &routes {
            let field = |name: &str| route.get(name).map_or("", String::as_str);
            if accesses.contains(&field("access")) {
                let request = format!("`{} {}`", field("method"), field("path"));
                page.push_str(&row(&[&request, &comments.of(field("handler"))?]));
            }
        }
    }
    Ok(page)
}

/// Parsed files with handlers.
#[derive(Default)]
pub(super) struct Comments(BTreeMap<String, syn::File>);

impl Comments {
    /// Describes a handler such as `admin::uploads::list::<Guests>`.
    pub(super) fn of(&mut self, handler: &str) -> Result<String> {
        let plain = handler.split("::<").next().unwrap_or_default();
        let (module, function) = plain.rsplit_once("::").context("a handler without a module")?;
        let path = format!("{HTTP}/{}.rs", module.replace("::", "/"));
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
    fn routes_are_described_by_their_handlers() {
        let routes = r#"[{"access":"admin","method":"GET","path":"/v1/models","handler":"admin::uploads::list::<Models>"}]"#;
        let page = table(routes).unwrap();
        assert!(
            page.contains("| `GET /v1/models` | Lists guests or models. "),
            "{page}"
        );
        let unknown = r#"[{"access":"admin","method":"GET","path":"/","handler":"admin::uploads::nothing"}]"#;
        assert!(table(unknown).is_err());
    }
}
