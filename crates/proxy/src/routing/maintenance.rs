//! Keeps the operator's orders of maintenance. Pure.
//!
//! An order stays as it was given, for a route or for all, and is applied to the routes of each configuration anew: a
//! reload does not end it.

use litequic_config::RouteConfig;
use std::collections::BTreeMap;

/// Orders of maintenance that are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance(BTreeMap<MaintenanceTarget, u32>);

/// Target of an order of maintenance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MaintenanceTarget {
    /// Every route that has an origin.
    All,
    /// The route of that name, with any target; without one the routes of that host that have an origin.
    Route(String),
}

/// Error of an order of maintenance without effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaintenanceError {
    /// The name is misspelt, or comes with a later reload.
    #[error("no route has the name or the host {0:?}")]
    Unknown(String),
    /// A route that was switched with others cannot be switched back by itself.
    #[error("{0:?} is not in maintenance under that name")]
    NotIn(String),
    /// The operator has given more orders than are allowed.
    #[error("{0} routes and hosts are in maintenance already: switch some back, or switch all routes")]
    Full(usize),
}

/// One order of maintenance, and its effect now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveMaintenance {
    /// Target of the order.
    pub target: MaintenanceTarget,
    /// Value of `Retry-After` in seconds.
    pub retry_after: u32,
    /// Names of the routes that match now.
    pub routes: Vec<String>,
}

impl ActiveMaintenance {
    /// Name of the route or the host, or `all`.
    pub fn target_text(&self) -> &str {
        match &self.target {
            MaintenanceTarget::All => "all",
            MaintenanceTarget::Route(what) => what,
        }
    }
}

impl Maintenance {
    /// Most orders at a time: each is compared with each route when a configuration is compiled.
    pub const MAX_ORDERS: usize = 256;

    /// Switches `target` to maintenance: its requests are answered 503 with `Retry-After`, in seconds.
    ///
    /// # Errors
    ///
    /// None of `routes`, whose names are `names`, matches; or there are too many orders already.
    pub fn switch_on(
        &mut self,
        target: MaintenanceTarget,
        retry_after: u32,
        routes: &[RouteConfig],
        names: &[String],
    ) -> Result<(), MaintenanceError> {
        if let MaintenanceTarget::Route(what) = &target
            && matching_routes(&target, routes, names).is_empty()
        {
            return Err(MaintenanceError::Unknown(what.clone()));
        }
        if self.0.len() >= Self::MAX_ORDERS && !self.0.contains_key(&target) {
            return Err(MaintenanceError::Full(Self::MAX_ORDERS));
        }
        self.0.insert(target, retry_after);
        Ok(())
    }

    /// Ends the maintenance of `target`: with [`MaintenanceTarget::All`] all of it.
    ///
    /// # Errors
    ///
    /// The target was not switched by that name.
    pub fn switch_off(&mut self, target: MaintenanceTarget) -> Result<(), MaintenanceError> {
        match target {
            MaintenanceTarget::All => self.0.clear(),
            MaintenanceTarget::Route(what) => {
                if self.0.remove(&MaintenanceTarget::Route(what.clone())).is_none() {
                    return Err(MaintenanceError::NotIn(what));
                }
            }
        }
        Ok(())
    }

    /// Whether no target is in maintenance.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `Retry-After` of each of `routes` that is in maintenance: by its name, else by its host, else with all.
    pub(crate) fn retry_after_by_route(&self, routes: &[RouteConfig], names: &[String]) -> Vec<Option<u32>> {
        let mut found: Vec<(u8, Option<u32>)> = vec![(0, None); routes.len()];
        for (target, seconds) in &self.0 {
            for place in matching_routes(target, routes, names) {
                let weight = match target {
                    MaintenanceTarget::All => 1,
                    MaintenanceTarget::Route(what) => 2 + u8::from(names.get(place) == Some(what)),
                };
                if let Some(one) = found.get_mut(place).filter(|(before, _)| *before < weight) {
                    *one = (weight, Some(*seconds));
                }
            }
        }
        found.into_iter().map(|(_, seconds)| seconds).collect()
    }

    /// Lists each order with the `routes` that match.
    pub fn list_orders(&self, routes: &[RouteConfig], names: &[String]) -> Vec<ActiveMaintenance> {
        let one = |(target, retry_after): (&MaintenanceTarget, &u32)| {
            let places = matching_routes(target, routes, names).into_iter();
            let routes = places.filter_map(|place| names.get(place).cloned()).collect();
            ActiveMaintenance { target: target.clone(), retry_after: *retry_after, routes }
        };
        self.0.iter().map(one).collect()
    }

    /// The orders alone, for the successor process; `None` stands for all routes.
    pub fn export_orders(&self) -> Vec<(Option<String>, u32)> {
        let word = |(target, retry_after): (&MaintenanceTarget, &u32)| match target {
            MaintenanceTarget::All => (None, *retry_after),
            MaintenanceTarget::Route(what) => (Some(what.clone()), *retry_after),
        };
        self.0.iter().map(word).collect()
    }
}

/// Takes the orders of another process, at most [`Maintenance::MAX_ORDERS`].
impl FromIterator<(Option<String>, u32)> for Maintenance {
    fn from_iter<I: IntoIterator<Item = (Option<String>, u32)>>(words: I) -> Self {
        let word = |(what, seconds): (Option<String>, u32)| {
            (what.map_or(MaintenanceTarget::All, MaintenanceTarget::Route), seconds)
        };
        Self(words.into_iter().take(Self::MAX_ORDERS).map(word).collect())
    }
}

/// Indices of the routes that match `target`.
fn matching_routes(target: &MaintenanceTarget, routes: &[RouteConfig], names: &[String]) -> Vec<usize> {
    let with_origin = |of: &dyn Fn(&RouteConfig) -> bool| {
        let places = routes.iter().enumerate().filter(|(_, route)| route.target_origin().is_some() && of(route));
        places.map(|(place, _)| place).collect()
    };
    match target {
        MaintenanceTarget::All => with_origin(&|_| true),
        MaintenanceTarget::Route(what) => match names.iter().position(|name| name == what) {
            Some(place) => vec![place],
            None => {
                let host = what.strip_suffix('.').unwrap_or(what);
                with_origin(&|route| route.host.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(host)))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_config::{FixedBody, FixedResponse, RouteTarget as Goes};

    fn routes() -> (Vec<RouteConfig>, Vec<String>) {
        let of = |host: Option<&str>, path_prefix: &str| RouteConfig {
            host: host.map(str::to_owned),
            path_prefix: path_prefix.into(),
            ..RouteConfig::catch_all("o")
        };
        let respond = FixedResponse { status: FixedResponse::DEFAULT_STATUS, body: FixedBody::None };
        let routes = vec![
            of(None, "/"),
            of(Some("a.test"), "/"),
            RouteConfig { name: Some("shop".into()), ..of(Some("a.test"), "/shop") },
            RouteConfig { target: Goes::Respond(respond), ..of(Some("a.test"), "/robots.txt") },
        ];
        let names = RouteConfig::unique_route_names(&routes);
        (routes, names)
    }

    fn route(what: &str) -> MaintenanceTarget {
        MaintenanceTarget::Route(what.into())
    }

    #[test]
    fn a_name_comes_before_a_host_and_a_host_before_all() {
        let (routes, names) = routes();
        let of = |words: &[(MaintenanceTarget, u32)]| {
            let mut maintenance = Maintenance::default();
            for (target, seconds) in words {
                maintenance.switch_on(target.clone(), *seconds, &routes, &names).unwrap();
            }
            assert_eq!(maintenance.export_orders().into_iter().collect::<Maintenance>(), maintenance);
            maintenance.retry_after_by_route(&routes, &names)
        };
        for (words, expected) in [
            (vec![], [None, None, None, None]),
            (vec![(MaintenanceTarget::All, 1)], [Some(1), Some(1), Some(1), None]),
            (vec![(route("a.test"), 2)], [None, Some(2), Some(2), None]),
            (vec![(route("A.test."), 2)], [None, Some(2), Some(2), None]),
            (vec![(route("shop"), 3)], [None, None, Some(3), None]),
            (vec![(route("*/"), 3)], [Some(3), None, None, None]),
            // A route that litequic answers itself matches by its name only.
            (vec![(route("a.test/robots.txt"), 4)], [None, None, None, Some(4)]),
            (
                vec![(MaintenanceTarget::All, 1), (route("a.test"), 2), (route("shop"), 3)],
                [Some(1), Some(2), Some(3), None],
            ),
            (vec![(MaintenanceTarget::All, 1), (MaintenanceTarget::All, 5)], [Some(5), Some(5), Some(5), None]),
        ] {
            assert_eq!(of(&words), expected, "{words:?}");
        }
    }

    #[test]
    fn a_word_without_effect_is_an_error_and_stays_unsaid() {
        let (routes, names) = routes();
        let mut maintenance = Maintenance::default();
        let unknown = maintenance.switch_on(route("b.test"), 1, &routes, &names);
        assert_eq!(unknown, Err(MaintenanceError::Unknown("b.test".into())));
        maintenance.switch_on(MaintenanceTarget::All, 1, &routes, &names).unwrap();
        assert_eq!(maintenance.switch_off(route("shop")), Err(MaintenanceError::NotIn("shop".into())));
        maintenance.switch_on(route("shop"), 1, &routes, &names).unwrap();
        maintenance.switch_off(route("shop")).unwrap();
        assert_eq!(maintenance.export_orders(), [(None, 1)]);
        maintenance.switch_on(route("shop"), 1, &routes, &names).unwrap();
        maintenance.switch_off(MaintenanceTarget::All).unwrap();
        assert!(maintenance.is_empty());
        maintenance.switch_off(MaintenanceTarget::All).unwrap();
    }

    #[test]
    fn what_was_said_holds_for_the_routes_of_the_next_configuration() {
        let (mut routes, names) = routes();
        let mut maintenance = Maintenance::default();
        maintenance.switch_on(route("a.test"), 9, &routes, &names).unwrap();
        routes.push(RouteConfig { path_prefix: "/new".into(), ..routes[1].clone() });
        assert_eq!(
            maintenance.retry_after_by_route(&routes, &RouteConfig::unique_route_names(&routes)),
            [None, Some(9), Some(9), None, Some(9)]
        );
        let none = maintenance.list_orders(&routes[..1], &names[..1]);
        assert_eq!(none, [ActiveMaintenance { target: route("a.test"), retry_after: 9, routes: Vec::new() }]);
    }

    #[test]
    fn words_are_bounded() {
        let (mut maintenance, max) = (Maintenance::default(), Maintenance::MAX_ORDERS);
        let named = |n: usize| RouteConfig { name: Some(format!("r{n}")), ..RouteConfig::catch_all("o") };
        let routes: Vec<_> = (0..=max).map(named).collect();
        let names = RouteConfig::unique_route_names(&routes);
        for n in 0..max {
            maintenance.switch_on(route(&format!("r{n}")), 1, &routes, &names).unwrap();
        }
        let last = route(&format!("r{max}"));
        assert_eq!(maintenance.switch_on(last, 1, &routes, &names), Err(MaintenanceError::Full(max)));
        maintenance.switch_on(route("r0"), 2, &routes, &names).unwrap();
    }
}
