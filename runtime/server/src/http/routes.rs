//! Table of all routes. It builds the routers and the reference, and tests iterate over it.

use super::answer::answered_by;
use super::{admin, extractions, operations, probe, profiles, tenant_routes, uploads};
use crate::service::Service;
use axum::Router;
use axum::routing::{MethodFilter, MethodRouter};
use http::Method;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Method and path with their handler.
#[derive(Debug, Serialize)]
pub struct Route {
    /// Clients of the route.
    pub access: Access,
    /// Method of the request.
    #[serde(serialize_with = "method_name")]
    pub method: Method,
    /// Path with parameters in braces, such as `/v1/guests/{name}`.
    pub path: &'static str,
    /// Content of the request.
    pub body: RequestBody,
    /// Function that answers the request. Its first paragraph of documentation describes the route in the
    /// reference.
    pub handler: &'static str,
    #[serde(skip)]
    endpoint: fn(MethodFilter) -> MethodRouter<Arc<Service>>,
}

/// Port and clients of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Tenants with a token, at the tenants' port.
    Tenant,
    /// All clients of the tenants' port.
    Anyone,
    /// Admins. The admin socket requires no token, and the port `admin_listen` requires an admin token.
    Admin,
    /// All clients of the port `metrics_listen`.
    Operator,
}

/// Content of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestBody {
    /// No body.
    Empty,
    /// JSON of up to `request_bytes` bytes.
    Json,
    /// Bytes of a guest or model.
    Upload,
}

fn method_name<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.as_str())
}

/// Creates a router with the routes for `access`.
pub(super) fn router(access: Access) -> Router<Arc<Service>> {
    let routes = ROUTES.iter().filter(|route| route.access == access);
    routes.fold(Router::new(), |router, route| {
        // The conversion only fails for methods that are not in the table.
        let filter = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET);
        router.route(route.path, (route.endpoint)(filter))
    })
}

macro_rules! routes {
    ($($access:ident $method:ident $path:literal $body:ident => $handler:expr;)*) => {
        /// Routes of a host, ordered as in the reference.
        pub static ROUTES: &[Route] = &[$(Route {
            access: Access::$access,
            method: Method::$method,
            path: $path,
            body: RequestBody::$body,
            handler: stringify!($handler),
            endpoint: |filter| answered_by(filter, $handler),
        }),*];
    };
}

routes! {
    Tenant   GET    "/v1/guests"                        Empty  => tenant_routes::list_guests;
    Tenant   GET    "/v1/guests/{name}"                 Empty  => tenant_routes::show_guest;
    Tenant   HEAD   "/v1/guests/{name}"                 Empty  => uploads::guest_offset;
    Tenant   PUT    "/v1/guests/{name}"                 Upload => uploads::put_guest;
    Tenant   DELETE "/v1/guests/{name}"                 Empty  => tenant_routes::delete_guest;
    Tenant   GET    "/v1/guests/{name}/log"             Empty  => tenant_routes::guest_log;
    Tenant   GET    "/v1/models"                        Empty  => tenant_routes::list_models;
    Tenant   GET    "/v1/models/{name}"                 Empty  => tenant_routes::show_model;
    Tenant   HEAD   "/v1/models/{name}"                 Empty  => uploads::model_offset;
    Tenant   PUT    "/v1/models/{name}"                 Upload => uploads::put_model;
    Tenant   DELETE "/v1/models/{name}"                 Empty  => tenant_routes::delete_model;
    Tenant   GET    "/v1/objects"                       Empty  => tenant_routes::list_objects;
    Tenant   POST   "/v1/descriptions"                  Json   => tenant_routes::describe;
    Tenant   GET    "/v1/load"                          Empty  => tenant_routes::load;
    Tenant   GET    "/v1/probe"                         Empty  => probe::probe;
    Tenant   POST   "/v1/extractions"                   Json   => extractions::extract;
    Tenant   POST   "/v1/profiles"                      Json   => profiles::measure;
    Tenant   GET    "/v1/profiles/{model}"              Empty  => profiles::show;
    Anyone   GET    "/healthz"                          Empty  => operations::health;
    Anyone   GET    "/readyz"                           Empty  => operations::ready;
    Anyone   GET    "/metrics"                          Empty  => operations::metrics;
    Admin    GET    "/v1/tenants"                       Empty  => admin::tenants::list;
    Admin    POST   "/v1/tenants"                       Json   => admin::tenants::add;
    Admin    GET    "/v1/tenants/{name}"                Empty  => admin::tenants::show;
    Admin    PATCH  "/v1/tenants/{name}"                Json   => admin::tenants::change;
    Admin    DELETE "/v1/tenants/{name}"                Empty  => admin::tenants::remove;
    Admin    POST   "/v1/tenants/{name}/tokens"         Json   => admin::tenants::rotate;
    Admin    DELETE "/v1/tenants/{name}/tokens/{id}"    Empty  => admin::tenants::revoke;
    Admin    GET    "/v1/tenants/{name}/quota"          Empty  => admin::quota::show;
    Admin    PATCH  "/v1/tenants/{name}/quota"          Json   => admin::quota::change;
    Admin    GET    "/v1/guests"                        Empty  => admin::uploads::list::<admin::uploads::Guests>;
    Admin    GET    "/v1/tenants/{name}/guests/{guest}" Empty  => admin::uploads::show_guest;
    Admin    PATCH  "/v1/tenants/{name}/guests/{guest}" Json   => admin::uploads::change_guest;
    Admin    DELETE "/v1/tenants/{name}/guests/{guest}" Empty  => admin::uploads::remove::<admin::uploads::Guests>;
    Admin    GET    "/v1/models"                        Empty  => admin::uploads::list::<admin::uploads::Models>;
    Admin    PUT    "/v1/models/{model}"                Upload => admin::uploads::publish;
    Admin    DELETE "/v1/models/{model}"                Empty  => admin::uploads::withdraw;
    Admin    DELETE "/v1/tenants/{name}/models/{model}" Empty  => admin::uploads::remove::<admin::uploads::Models>;
    Admin    GET    "/v1/activity"                      Empty  => admin::activity::show;
    Admin    GET    "/v1/jobs"                          Empty  => admin::jobs::list;
    Admin    GET    "/v1/jobs/{id}"                     Empty  => admin::jobs::show;
    Admin    DELETE "/v1/jobs/{id}"                     Empty  => admin::jobs::cancel;
    Admin    GET    "/v1/hosts"                         Empty  => admin::activity::hosts;
    Admin    POST   "/v1/hosts/{name}/drain"            Empty  => admin::activity::drain_host;
    Admin    DELETE "/v1/hosts/{name}/drain"            Empty  => admin::activity::undrain_host;
    Admin    POST   "/v1/drain"                         Empty  => admin::activity::drain;
    Admin    DELETE "/v1/drain"                         Empty  => admin::activity::undrain;
    Admin    GET    "/v1/audit"                         Empty  => admin::activity::audit;
    Admin    GET    "/v1/usage"                         Empty  => admin::usage::show;
    Operator GET    "/metrics"                          Empty  => operations::metrics_by_tenant;
    Operator GET    "/healthz"                          Empty  => operations::health;
    Operator GET    "/readyz"                           Empty  => operations::ready_by_root;
}
