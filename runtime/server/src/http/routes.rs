//! Table of all routes. It builds the routers, the reference and the OpenAPI files, and tests iterate over it.

use super::answer::answered_by;
use super::queries::{
    Amount, AuditQuery, ListingQuery, LogQuery, PageQuery, RemovalQuery, TenantQuery, UsageQuery, Version,
};
use super::route_content::{Content, JsonType, SchemaOf};
use super::{admin, extractions, operations, probe, profiles, tenant_routes, uploads};
use crate::service::Service;
use axum::Router;
use axum::routing::{MethodFilter, MethodRouter};
use frostline_wire::{
    Activity, AuditEntry, DayUsage, Description, DescriptionRequest, ExtractionRequest, GivenToken,
    GuestChange, GuestInfo, GuestLog, HostInfo, JobDetail, JobInfo, Load, ModelInfo, NewTenant, NewToken,
    ObjectPage, Profile, ProfileRequest, QuotaChange, QuotaInfo, Removal, Revoked, TenantChange, TenantInfo,
    UploadInfo,
};
use http::Method;
use schemars::JsonSchema;
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
    /// Parameters in the query of the request.
    #[serde(skip)]
    pub(super) query: Option<SchemaOf>,
    /// Content of the request.
    #[serde(skip)]
    pub body: Content,
    /// Content of a successful answer.
    #[serde(skip)]
    pub answer: Content,
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

macro_rules! content {
    (Json $type:ty) => {
        Content::Json(JsonType::new::<$type>())
    };
    ($kind:ident) => {
        Content::$kind
    };
}

macro_rules! query {
    () => {
        None
    };
    ($type:ty) => {
        Some(<$type>::json_schema)
    };
}

macro_rules! routes {
    ($($access:ident $method:ident $path:literal $([$query:ty])? $body:ident $(($input:ty))? =>
        $handler:expr, $answer:ident $(($output:ty))?;)*) => {
        /// Routes of a host, ordered as in the reference.
        pub static ROUTES: &[Route] = &[$(Route {
            access: Access::$access,
            method: Method::$method,
            path: $path,
            query: query!($($query)?),
            body: content!($body $($input)?),
            answer: content!($answer $($output)?),
            handler: stringify!($handler),
            endpoint: |filter| answered_by(filter, $handler),
        }),*];
    };
}

// Columns: access, method, path with the type of the query, content of the request, handler, content of the answer.
routes! {
    Tenant   GET    "/v1/guests" [PageQuery]            Empty                    => tenant_routes::list_guests, Json(Vec<GuestInfo>);
    Tenant   GET    "/v1/guests/{name}" [Version]       Empty                    => tenant_routes::show_guest, Json(GuestInfo);
    Tenant   HEAD   "/v1/guests/{name}" [Version]       Empty                    => uploads::guest_offset, Empty;
    Tenant   PUT    "/v1/guests/{name}" [Version]       Upload                   => uploads::put_guest, Json(GuestInfo);
    Tenant   DELETE "/v1/guests/{name}"                 Empty                    => tenant_routes::delete_guest, Empty;
    Tenant   GET    "/v1/guests/{name}/log" [LogQuery]  Empty                    => tenant_routes::guest_log, Json(GuestLog);
    Tenant   GET    "/v1/models" [PageQuery]            Empty                    => tenant_routes::list_models, Json(Vec<ModelInfo>);
    Tenant   GET    "/v1/models/{name}" [Version]       Empty                    => tenant_routes::show_model, Json(ModelInfo);
    Tenant   HEAD   "/v1/models/{name}" [Version]       Empty                    => uploads::model_offset, Empty;
    Tenant   PUT    "/v1/models/{name}" [Version]       Upload                   => uploads::put_model, Json(ModelInfo);
    Tenant   DELETE "/v1/models/{name}"                 Empty                    => tenant_routes::delete_model, Empty;
    Tenant   GET    "/v1/objects" [ListingQuery]        Empty                    => tenant_routes::list_objects, Json(ObjectPage);
    Tenant   POST   "/v1/descriptions"                  Json(DescriptionRequest) => tenant_routes::describe, Json(Description);
    Tenant   GET    "/v1/load"                          Empty                    => tenant_routes::load, Json(Load);
    Tenant   GET    "/v1/probe" [Amount]                Empty                    => probe::probe, Bytes;
    Tenant   POST   "/v1/extractions"                   Json(ExtractionRequest)  => extractions::extract, Arrow;
    Tenant   POST   "/v1/profiles"                      Json(ProfileRequest)     => profiles::measure, Json(Profile);
    Tenant   GET    "/v1/profiles/{model}"              Empty                    => profiles::show, Json(Profile);
    Anyone   GET    "/healthz"                          Empty                    => operations::health, Text;
    Anyone   GET    "/readyz"                           Empty                    => operations::ready, Text;
    Anyone   GET    "/metrics"                          Empty                    => operations::metrics, Text;
    Admin    GET    "/v1/tenants"                       Empty                    => admin::tenants::list, Json(Vec<TenantInfo>);
    Admin    POST   "/v1/tenants"                       Json(NewTenant)          => admin::tenants::add, Json(GivenToken);
    Admin    GET    "/v1/tenants/{name}"                Empty                    => admin::tenants::show, Json(TenantInfo);
    Admin    PATCH  "/v1/tenants/{name}"                Json(TenantChange)       => admin::tenants::change, Json(TenantInfo);
    Admin    DELETE "/v1/tenants/{name}" [RemovalQuery] Empty                    => admin::tenants::remove, Json(Removal);
    Admin    POST   "/v1/tenants/{name}/tokens"         Json(NewToken)           => admin::tenants::rotate, Json(GivenToken);
    Admin    DELETE "/v1/tenants/{name}/tokens/{id}"    Empty                    => admin::tenants::revoke, Json(Revoked);
    Admin    GET    "/v1/tenants/{name}/quota"          Empty                    => admin::quota::show, Json(Vec<QuotaInfo>);
    Admin    PATCH  "/v1/tenants/{name}/quota"          Json(QuotaChange)        => admin::quota::change, Json(Vec<QuotaInfo>);
    Admin    GET    "/v1/guests" [TenantQuery]          Empty                    => admin::uploads::list::<admin::uploads::Guests>, Json(Vec<UploadInfo>);
    Admin    GET    "/v1/tenants/{name}/guests/{guest}" Empty                    => admin::uploads::show_guest, Json(UploadInfo);
    Admin    PATCH  "/v1/tenants/{name}/guests/{guest}" Json(GuestChange)        => admin::uploads::change_guest, Json(UploadInfo);
    Admin    DELETE "/v1/tenants/{name}/guests/{guest}" Empty                    => admin::uploads::remove::<admin::uploads::Guests>, Empty;
    Admin    GET    "/v1/models" [TenantQuery]          Empty                    => admin::uploads::list::<admin::uploads::Models>, Json(Vec<UploadInfo>);
    Admin    PUT    "/v1/models/{model}" [Version]      Upload                   => admin::uploads::publish, Json(UploadInfo);
    Admin    DELETE "/v1/models/{model}"                Empty                    => admin::uploads::withdraw, Empty;
    Admin    DELETE "/v1/tenants/{name}/models/{model}" Empty                    => admin::uploads::remove::<admin::uploads::Models>, Empty;
    Admin    GET    "/v1/activity"                      Empty                    => admin::activity::show, Json(Activity);
    Admin    GET    "/v1/jobs"                          Empty                    => admin::jobs::list, Json(Vec<JobInfo>);
    Admin    GET    "/v1/jobs/{id}"                     Empty                    => admin::jobs::show, Json(JobDetail);
    Admin    DELETE "/v1/jobs/{id}"                     Empty                    => admin::jobs::cancel, Empty;
    Admin    GET    "/v1/hosts"                         Empty                    => admin::activity::hosts, Json(Vec<HostInfo>);
    Admin    POST   "/v1/hosts/{name}/drain"            Empty                    => admin::activity::drain_host, Empty;
    Admin    DELETE "/v1/hosts/{name}/drain"            Empty                    => admin::activity::undrain_host, Empty;
    Admin    POST   "/v1/drain"                         Empty                    => admin::activity::drain, Json(Activity);
    Admin    DELETE "/v1/drain"                         Empty                    => admin::activity::undrain, Empty;
    Admin    GET    "/v1/audit" [AuditQuery]            Empty                    => admin::activity::audit, Json(Vec<AuditEntry>);
    Admin    GET    "/v1/usage" [UsageQuery]            Empty                    => admin::usage::show, Json(Vec<DayUsage>);
    Operator GET    "/metrics"                          Empty                    => operations::metrics_by_tenant, Text;
    Operator GET    "/healthz"                          Empty                    => operations::health, Text;
    Operator GET    "/readyz"                           Empty                    => operations::ready_by_root, Text;
}
