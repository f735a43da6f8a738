//! Compiles the rules of one route, and applies them to a request.

use super::field_rules::{FieldRules, UsedVariables, Variables};
use super::redirect::RedirectRule;
use super::respond::RespondRule;
use super::rewrite;
use crate::access::{AddressRules, AddressSet, AuthRule, RateLimiter, Users, UsersRule};
use crate::answer::{Error, StaticPage};
use crate::message::spelling;
use litequic_config::{self as config, Config, RateLimitBy, RouteTarget, Timeouts};
use litequic_exchange::{Client, FieldName, Fields, Head, name};
use std::{borrow::Cow, sync::Arc};

/// Compiled rules of one route.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    request: FieldRules,
    pub(crate) response: FieldRules,
    rewrite: Option<rewrite::PrefixRewrite>,
    pub(crate) redirect: Option<RedirectRule>,
    pub(crate) respond: Option<RespondRule>,
    /// `Retry-After`, in seconds, if the route is in maintenance.
    pub(crate) maintenance: Option<u32>,
    /// Addresses that the route serves, if not all.
    pub(crate) addresses: Option<AddressRules>,
    /// Users of the route, and their passwords.
    pub(crate) users: Option<UsersRule>,
    /// Server that decides about the route's requests.
    pub(crate) auth: Option<AuthRule>,
    /// Names, in their plain spelling, of the origin's fields that only a step before the origin may set.
    granted: Vec<String>,
    /// Names of the fields that no client may send, because a step before the origin sets them on some route to it.
    withheld: Vec<String>,
    /// All timeouts, and those of streaming calls, if one differs from `[timeouts]`.
    pub(crate) timeouts: Option<(Timeouts, Timeouts)>,
    pub(crate) limiter: Option<Arc<RateLimiter>>,
    uses: UsedVariables,
}

/// State of a route that rules use.
#[derive(Debug, Default)]
pub(crate) struct RouteState {
    /// Rate limiter of the route.
    pub(crate) limiter: Option<Arc<RateLimiter>>,
    /// Content of the file of the route's fixed response.
    pub(crate) file: Option<StaticPage>,
    /// `Retry-After`, in seconds, if the route is in maintenance.
    pub(crate) maintenance: Option<u32>,
    /// Content of the route's file of users.
    pub(crate) users: Option<Arc<Users>>,
    /// Names of the fields that no client may send to the route's origin ([`Config::withheld_fields`]).
    pub(crate) withheld: Vec<String>,
}

impl RuleSet {
    /// Compiles the rules of `route` and the general ones of `config`; `None` if there are none.
    pub(crate) fn new(route: &config::RouteConfig, config: &Config, own: RouteState) -> Option<Self> {
        let RouteState { limiter, file, maintenance, users, withheld } = own;
        let timeouts = &config.timeouts;
        let own = &route.timeouts;
        let merge = |timeouts: &Timeouts| Timeouts {
            request: own.request.unwrap_or(timeouts.request),
            response_header: own.response_header.unwrap_or(timeouts.response_header),
            response_body: own.response_body.unwrap_or(timeouts.response_body),
            ..*timeouts
        };
        let timeouts = (*own != config::RouteTimeouts::default())
            .then(|| (merge(timeouts), merge(&timeouts.for_streaming_calls())));
        let request = FieldRules::new(&route.request_headers.with_general_rules(&config.request_headers));
        let response = FieldRules::new(&route.response_headers.with_general_rules(&config.response_headers));
        let (redirect, respond) = match &route.target {
            RouteTarget::Origin(_) => (None, None),
            RouteTarget::Redirect(redirect) => (Some(RedirectRule::new(redirect)), None),
            RouteTarget::Respond(respond) => (None, Some(RespondRule::new(respond, file))),
        };
        let addresses = AddressRules::new(route);
        let auth = route.auth.as_ref().map(AuthRule::new);
        let users = UsersRule::new(route, users);
        let copied =
            auth.iter().flat_map(AuthRule::copied_names).map(|name| spelling::plain_name(name.as_str()).into_owned());
        let granted = users.iter().map(|_| name::REMOTE_USER.as_str().to_owned()).chain(copied).collect();
        let counted = route.rate_limit.is_some_and(|limit| limit.by == RateLimitBy::Address);
        let uses = [
            request.used_variables(),
            response.used_variables(),
            redirect.as_ref().map(RedirectRule::location_variables).unwrap_or_default(),
        ];
        let prefix = route.path.as_deref().unwrap_or(&route.path_prefix);
        let rules = Self {
            request,
            response,
            rewrite: route.rewrite_prefix.as_deref().map(|to| rewrite::PrefixRewrite::new(prefix, to)),
            redirect,
            respond,
            maintenance,
            uses: uses.into_iter().fold(
                UsedVariables { client: counted || addresses.is_some() || users.is_some(), host: false },
                UsedVariables::union_with,
            ),
            addresses,
            users,
            auth,
            granted,
            withheld,
            timeouts,
            limiter,
        };
        (!rules.is_empty()).then_some(rules)
    }

    /// Compiles the general rules of `config` for responses to requests that match no route; `None` if there are none.
    pub(crate) fn without_route(config: &Config) -> Option<Self> {
        let response = FieldRules::new(&config.response_headers);
        let rules = Self { uses: response.used_variables(), response, ..Self::default() };
        (!rules.is_empty()).then_some(rules)
    }

    fn is_empty(&self) -> bool {
        let Self { request, response, rewrite, redirect, respond, maintenance, timeouts, .. } = self;
        let Self { addresses, users, auth, granted: _, withheld, limiter, uses: _, .. } = self;
        let fields = request.is_empty() && response.is_empty();
        let ways = rewrite.is_none() && redirect.is_none() && respond.is_none() && maintenance.is_none();
        let access = addresses.is_none() && users.is_none() && auth.is_none() && limiter.is_none();
        fields && ways && access && withheld.is_empty() && timeouts.is_none()
    }

    /// The values of the request with `head` and `id` for the rules, as far as they are needed.
    pub(crate) fn read_variables<'a>(
        &self,
        head: &Head,
        client: &Client,
        trusted: &AddressSet,
        id: &'a str,
    ) -> Variables<'a> {
        Variables::from_request(head, client, trusted, id, self.uses)
    }

    /// Changes the response to a request of `client` that was rejected before its fields were read: `{host}` is empty.
    pub(crate) fn change_rejection(&self, fields: &mut Fields, client: &Client, id: &str) {
        self.response.change_fields(fields, &Variables::from_rejected(client, id));
    }

    /// Changes the head for an origin.
    ///
    /// # Errors
    ///
    /// [`Error::PathTooLong`]
    pub(crate) fn change_request(&self, head: &mut Head, variables: &Variables<'_>) -> Result<(), Error> {
        if let Cow::Owned(path) = self.rewritten_path(head)? {
            head.set_target(&path);
        }
        if !self.withheld.is_empty() {
            spelling::remove_names(&mut head.fields, |name| self.withholds_field(&spelling::plain_name(name)));
        }
        self.request.remove_other_spellings(&mut head.fields);
        self.request.change_fields(&mut head.fields, variables);
        Ok(())
    }

    /// Whether a rule for the origin's header, or a step before the origin, sets a field that an origin may read as
    /// `plain`.
    pub(crate) fn names_request_field(&self, plain: &str) -> bool {
        self.request.names_field(plain) || self.withholds_field(plain)
    }

    /// Whether no client may send a field that an origin may read as `plain`.
    pub(crate) fn withholds_field(&self, plain: &str) -> bool {
        self.withheld.iter().chain(&self.granted).any(|withheld| withheld == plain)
    }

    /// Sets the fields that a step before the origin has `granted`, each once, in place of the client's own in any
    /// spelling; without a grant there is none.
    pub(crate) fn set_granted(&self, fields: &mut Fields, granted: &[(FieldName, Vec<u8>)]) {
        if self.granted.is_empty() {
            return;
        }
        spelling::remove_names(fields, |name| self.is_granted(name));
        for (name, value) in granted {
            fields.set_field(name.as_name_ref(), value);
        }
    }

    fn is_granted(&self, name: &str) -> bool {
        let plain = spelling::plain_name(name);
        self.granted.iter().any(|granted| *granted == plain)
    }

    /// The path with its query for the origin, or for a redirect.
    ///
    /// # Errors
    ///
    /// [`Error::PathTooLong`]
    pub(crate) fn rewritten_path<'a>(&self, head: &'a Head) -> Result<Cow<'a, str>, Error> {
        let path = head.path_and_query();
        self.rewrite.as_ref().map_or(Ok(path.into()), |rewrite| rewrite.rewrite_path(&head.method, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::field_rules::tests::test_variables;
    use litequic_config::{Auth, OriginConfig, ReservedFields, RouteConfig, Template};
    use litequic_exchange::{Authority, FieldNameRef};

    /// Returns the names of the fields that the origin of the first of `routes` gets of a client's.
    fn passed_names(routes: Vec<RouteConfig>, reserved: &[&str]) -> Vec<String> {
        let listen = ([127, 0, 0, 1], 0).into();
        let mut config = Config::with_defaults(listen, "http://o".parse().unwrap(), "c".into(), "k".into());
        let reserved = ReservedFields::new(reserved.iter().map(|item| item.parse().unwrap()).collect());
        let origin = |url: &str| OriginConfig {
            servers: vec![url.parse::<config::OriginAddress>().unwrap().into()],
            reserved_fields: reserved.clone(),
            ..OriginConfig::default()
        };
        config.origins = [("o", "http://o"), ("same", "http://o"), ("other", "http://other")]
            .map(|(name, url)| (name.to_owned(), origin(url)))
            .into();
        config.routes = routes;
        let names = ["remote-user", "remote_user", "x-role", "x-kept"];
        let fields = names.iter().map(|name| (FieldNameRef::from_lower_case_token(name), &b"admin"[..])).collect();
        let mut head = Head::new(http::Method::GET, Authority::new("a.test"), "/", fields);
        let withheld = &config.withheld_fields()["o"];
        let state =
            RouteState { withheld: withheld.iter().map(|name| (*name).to_owned()).collect(), ..RouteState::default() };
        if let Some(rules) = RuleSet::new(&config.routes[0], &config, state) {
            rules.change_request(&mut head, &test_variables("a.test", "id")).unwrap();
        }
        head.fields.iter().map(|line| line.name_str().to_owned()).collect()
    }

    #[test]
    fn a_field_that_another_route_of_the_origin_sets_is_withheld() {
        let general = || RouteConfig::catch_all("o");
        let users = |origin: &str| RouteConfig { users: Some("users".into()), ..RouteConfig::catch_all(origin) };
        let auth =
            Auth { origin: "auth".into(), path: "/".into(), copy: vec![http::HeaderName::from_static("x-role")] };
        let auth = RouteConfig { auth: Some(auth), ..RouteConfig::catch_all("o") };
        let all = ["remote-user", "remote_user", "x-role", "x-kept"];
        assert_eq!(passed_names(vec![general()], &[]), all);
        assert_eq!(passed_names(vec![general(), users("other")], &[]), all);
        assert_eq!(passed_names(vec![general(), users("o")], &[]), ["x-role", "x-kept"]);
        assert_eq!(passed_names(vec![general(), users("same")], &[]), ["x-role", "x-kept"]);
        assert_eq!(passed_names(vec![general(), users("o"), auth.clone()], &[]), ["x-kept"]);
        assert_eq!(passed_names(vec![general(), users("o"), auth], &["!remote-user"]), [all[0], all[1], all[3]]);
        let mut general = general();
        general.request_headers.set =
            vec![(http::HeaderName::from_static("remote-user"), Template::parse_variables("guest", &[]).unwrap())];
        assert_eq!(passed_names(vec![general, users("o")], &[]), ["x-role", "x-kept", "remote-user"]);
    }
}
