use crate::markup::escaped;

/// Page without its contents. The policy forbids scripts and external content.
const PAGE: &str = include_str!("page.html");

/// Returns a page with these contents.
pub(super) fn page(title: &str, contents: &str) -> String {
    let title = escaped(title).replace('{', "&#123;");
    let page = PAGE.replace("{style}", include_str!("style.css"));
    let page = page.replace("{version}", env!("CARGO_PKG_VERSION"));
    page.replace("{title}", &title).replace("{contents}", contents)
}
