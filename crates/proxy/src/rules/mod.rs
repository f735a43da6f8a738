//! A route's rules, compiled: fields, paths, redirects, fixed answers, timeouts, and who may use the route. Pure. A
//! route without any of it has no [`Rules`]; error pages are separate, because those for all routes cost a successful
//! request nothing.

mod field_rules;
mod redirect;
mod respond;
mod rewrite;
mod rule_set;

pub(crate) use field_rules::Variables;
pub(crate) use rule_set::{RouteState, RuleSet};
