//! A route's rules, compiled: fields, paths, redirects, fixed answers, timeouts, and who may use the route. Pure. A
//! route without any of it has no [`Rules`]; error pages are separate, because those for all routes cost a successful
//! request nothing.

mod fields;
mod redirect;
mod respond;
mod rewrite;
mod route;

pub(crate) use fields::Variables;
pub(crate) use route::{RouteState, RuleSet};
