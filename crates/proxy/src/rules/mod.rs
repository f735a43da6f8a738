//! Compiles and applies a route's rules: fields, paths, redirects, fixed responses, timeouts, and access. Pure. A route
//! without rules has no [`RuleSet`]; error pages are separate, because those for all routes cost a successful request
//! nothing.

mod field_rules;
mod redirect;
mod respond;
mod rewrite;
mod rule_set;

pub(crate) use field_rules::Variables;
pub(crate) use rule_set::{RouteState, RuleSet};
