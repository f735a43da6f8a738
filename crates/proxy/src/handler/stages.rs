//! The stages of a request, from its head to its response's.

use super::{
    error_log,
    proxy::{Local, Proxy},
};
use crate::{
    access::{
        AuthDecision, AuthRule, Credentials, MAX_BODY, PasswordCheck, RateLimiter, TakenPermit, UsersRule, pass_on,
    },
    answer::{Error, discard},
    forward::{Outcome, Sending, send},
    message::{BodyFraming, FieldPolicy, forwarded, request},
    metrics::RouteMetrics,
    routing::Route,
    rules::{Rules, Variables},
    tunnel::{Switch, choose},
};
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use litequic_base::timers::{self, timeout};
use litequic_config::{Network, Timeouts};
use litequic_exchange::{
    Abort, Body, CertificateRequest, Client, Exchange, FieldName, Fields, Handler, Head, Interim, Protocol, Record,
    Request, RequestText, Response, Upgrade, name, set_date,
};
use litequic_resources::fairness::Source;
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

impl Proxy {
    async fn serve(&self, asked: &Asked<'_>, head: &mut Head, body: Body) -> Result<Response, Outcome> {
        let &Asked { local, route, client, interim, id, record, ruled, .. } = asked;
        record.note(|facts| {
            facts.route = Some(Arc::clone(&route.name));
            facts.http_route = Some(Arc::clone(&route.http_route));
            facts.origin = route.origin.as_deref().map(Into::into);
        });
        self.refuse_denied(asked, &head.fields)?;
        self.admit(asked)?;
        let mut granted: Vec<(FieldName, Vec<u8>)> = Vec::new();
        if let Some((rules, variables)) = ruled
            && let Some(users) = &rules.users
        {
            // Boxed, so that the future of a request on another route is not larger because of it.
            let name = Box::pin(self.sign_in(asked, users, variables.client, &head.fields)).await?;
            granted.push((name::REMOTE_USER.into(), name));
            if !users.keeps_authorization {
                head.fields.remove(name::AUTHORIZATION);
            }
        }
        self.limit_rate(asked)?;
        let spent = match ruled.and_then(|(rules, _)| rules.auth.as_ref()) {
            // Boxed as well.
            Some(auth) => match Box::pin(self.authenticate(asked, auth, head)).await? {
                (Authenticated::Admitted(more), took) => {
                    granted.extend(more);
                    took
                }
                (Authenticated::Answered(answer), _) => return Ok(answer),
            },
            None => Duration::ZERO,
        };
        if let Some(answer) = own_answer(asked, head)? {
            return Ok(answer);
        }
        // A checked configuration has the origin of every route.
        let origin = route.origin.as_deref().and_then(|name| local.origins.get(name)).ok_or(Error::NoRoute)?;
        if !request::may_go_on(&head.method, &mut head.fields) {
            return Ok(last_recipient(id));
        }
        let framing = BodyFraming::of(&body);
        if let (BodyFraming::Length(length), Some(allowed)) = (framing, route.max_body_bytes)
            && length > allowed
        {
            self.metrics.limit_body_bytes.increment();
            return Err(Error::BodyTooLarge.into());
        }
        let network = local.routing.source(client.address.ip(), &head.fields);
        let source = Source::new(network.map(|network| (network.address, network.prefix)), client.connection);
        let wish = origin.wish(&head.fields, || local.routing.client(client.address.ip(), &head.fields));
        let switch = match head.upgrade.take() {
            Some(upgrade) => self.switch(asked, &upgrade, network)?,
            None => None,
        };
        self.translate(asked, head, framing, origin.policy())?;
        if let Some((rules, _)) = ruled {
            rules.grant(&mut head.fields, &granted);
        }
        if let Some(switch) = &switch {
            switch.ask(&mut head.fields);
        }
        request::propagate(&mut head.fields, record.trace());
        let own = ruled.and_then(|(rules, _)| rules.timeouts.as_ref());
        let timeouts = own.unwrap_or(&local.routing.timeouts);
        let left = left_of(timeouts, spent);
        let timeouts = left.as_deref().unwrap_or(timeouts);
        let max_body_bytes = route.max_body_bytes;
        let rules = route.rules.as_ref();
        let methods_matter = route.head.methods_matter;
        let sending = Sending {
            head,
            framing,
            body,
            max_body_bytes,
            client,
            source,
            interim,
            record,
            traced: record,
            timeouts,
            rules,
            methods_matter,
            switch,
            wish,
        };
        let began = timers::now();
        let answer = send(origin, sending).await;
        let took = timers::now().saturating_duration_since(began);
        self.metrics.origin_duration.observe(took);
        record.note(|facts| facts.origin_time = Some(took));
        let page = answer.as_ref().ok().and_then(|response| route.pages.intercepts(response.status));
        match (answer, page) {
            (Ok(response), Some(page)) => {
                let instead = page.instead_of(&response);
                discard(response.body).await;
                Ok(instead)
            }
            (answer, _) => answer,
        }
    }

    /// Whether the operator denies the client, as the proxy names it that is trusted: the peer's own address was looked
    /// at when it connected, and a client that has moved since is at another one.
    fn refuse_denied(&self, asked: &Asked<'_>, fields: &Fields) -> Result<(), Error> {
        let client = |peer| asked.local.routing.client(peer, fields);
        if self.denied.is_empty() || !self.denied.denies(client(asked.client.address.ip()), std::time::Instant::now) {
            return Ok(());
        }
        self.metrics.denied.increment();
        Err(Error::AddressDenied)
    }

    /// Whether the route serves its client at all.
    fn admit(&self, asked: &Asked<'_>) -> Result<(), Error> {
        let &Asked { local, route, ruled, .. } = asked;
        if let Some((rules, variables)) = ruled {
            if let Some(retry_after) = rules.maintenance {
                self.metrics.maintenance_responses.increment();
                return Err(Error::Maintenance { retry_after });
            }
            if let Some(addresses) = &rules.addresses
                && !addresses.admit(variables.client)
            {
                if let Some(counters) = local.routes.get(route.number) {
                    counters.denied_addresses.increment();
                }
                return Err(Error::AddressDenied);
            }
        }
        Ok(())
    }

    /// Has the password in `fields` checked, which `client` has sent; returns the user's name.
    ///
    /// # Errors
    ///
    /// There is none, it is wrong, or it cannot be checked now.
    async fn sign_in(
        &self,
        asked: &Asked<'_>,
        rule: &UsersRule,
        client: IpAddr,
        fields: &Fields,
    ) -> Result<Vec<u8>, Error> {
        let &Asked { local, route, client: peer, .. } = asked;
        let denied = |error: Error| {
            if let Some(counters) = local.routes.get(route.number) {
                counters.denied_passwords.increment();
            }
            error
        };
        let Some(credentials) = Credentials::of(fields) else {
            self.metrics.passwords_missing.increment();
            return Err(denied(Error::NoPassword));
        };
        let name = credentials.name_field();
        let network = local.routing.source(peer.address.ip(), fields);
        let source = Source::new(network.map(|network| (network.address, network.prefix)), peer.connection);
        let checked = local.routing.passwords.check(&rule.users, credentials, source, client).await;
        let (counter, error) = match checked {
            PasswordCheck::Remembered => (&self.metrics.passwords_remembered, None),
            PasswordCheck::Right => (&self.metrics.passwords_right, None),
            PasswordCheck::Wrong => (&self.metrics.passwords_wrong, Some(denied(Error::NoPassword))),
            PasswordCheck::Limited(wait) => {
                let error = Error::TooManyRequests { retry_after: whole_seconds(wait) };
                (&self.metrics.passwords_limited, Some(denied(error)))
            }
            PasswordCheck::Busy => (&self.metrics.passwords_busy, Some(Error::PasswordQueue)),
        };
        counter.increment();
        // A user who has signed in has a name that is a field's value.
        error.map_or_else(|| name.ok_or(Error::NoPassword), Err)
    }

    /// Whether the route serves the request of its client now.
    fn limit_rate(&self, asked: &Asked<'_>) -> Result<(), Error> {
        let &Asked { local, route, client, ruled, .. } = asked;
        if let Some((rules, variables)) = ruled
            && let Some(limiter) = &rules.limiter
        {
            self.limit(limiter, variables, local.routes.get(route.number))?;
        }
        if route.head.certificate == CertificateRequest::Required && client.identity.certificate.is_none() {
            return Err(Error::NoCertificate);
        }
        Ok(())
    }

    /// Has the server of `auth` decide about the request with `head`. Its body is not read meanwhile, and nothing is
    /// remembered. Returns how long that took as well.
    ///
    /// # Errors
    ///
    /// There is no answer, or none that can be followed: the request is not served.
    async fn authenticate(
        &self,
        asked: &Asked<'_>,
        auth: &AuthRule,
        head: &Head,
    ) -> Result<(Authenticated, Duration), Outcome> {
        let &Asked { local, route, record, id, .. } = asked;
        let began = Instant::now();
        let decided = self.ask(asked, auth, head).await;
        let took = began.elapsed();
        record.note(|facts| facts.auth_time = Some(took));
        let counters = local.routes.get(route.number);
        match decided {
            Ok((decision, answer)) => {
                let counter = match &decision {
                    AuthDecision::Admitted(_) => &self.metrics.auth_admitted,
                    AuthDecision::Denied => &self.metrics.auth_denied,
                    AuthDecision::Redirected => &self.metrics.auth_redirected,
                    AuthDecision::Unusable => &self.metrics.auth_unusable,
                };
                counter.increment();
                let (request, origin, status) = (id, &auth.origin, answer.status.as_u16());
                match decision {
                    AuthDecision::Admitted(granted) => Ok((Authenticated::Admitted(granted), took)),
                    AuthDecision::Denied | AuthDecision::Redirected => {
                        if let Some(counters) = counters {
                            counters.denied_auth.increment();
                        }
                        let route = &*route.name;
                        tracing::debug!(request, route, origin, status, "denied by the server that decides");
                        Ok((Authenticated::Answered(answer), took))
                    }
                    AuthDecision::Unusable => {
                        tracing::warn!(request, origin, status, "no usable decision about access");
                        Err(Error::AuthAnswer.into())
                    }
                }
            }
            Err(outcome) => {
                self.metrics.auth_failed.increment();
                if let Outcome::Answer(error) = outcome {
                    let (request, origin) = (id, &auth.origin);
                    tracing::info!(request, origin, %error, "no decision about access");
                }
                Err(outcome)
            }
        }
    }

    /// Sends the request about the request with `head` to the server of `auth`; returns its decision, and the answer
    /// for the client, which is empty if it is not one.
    async fn ask(&self, asked: &Asked<'_>, auth: &AuthRule, head: &Head) -> Result<(AuthDecision, Response), Outcome> {
        let &Asked { local, route, client, id, trusted, ruled, record, .. } = asked;
        // A checked configuration has it.
        let origin = local.origins.get(&auth.origin).ok_or(Error::NoRoute)?;
        let routing = &local.routing;
        let granted = ruled.map(|(rules, _)| rules.granted()).unwrap_or_default();
        let mut to_it = auth.request(head, granted);
        // What is removed is counted when the request itself is sent.
        request::translate(&mut to_it, BodyFraming::None, &route.head, client, id, trusted, origin.policy())?;
        AuthRule::describe(head, &mut to_it);
        request::propagate(&mut to_it.fields, record.trace());
        let network = routing.source(client.address.ip(), &head.fields);
        let sending = Sending {
            head: &to_it,
            framing: BodyFraming::None,
            body: Body::empty(),
            max_body_bytes: None,
            client,
            source: Source::new(network.map(|network| (network.address, network.prefix)), client.connection),
            interim: &Interim::default(),
            record: &Record::default(),
            traced: record,
            timeouts: &routing.timeouts,
            rules: None,
            methods_matter: false,
            switch: None,
            wish: origin.wish(&head.fields, || routing.client(client.address.ip(), &head.fields)),
        };
        let began = Instant::now();
        let answer = send(origin, sending).await;
        self.metrics.origin_duration.observe(began.elapsed());
        let Response { status, fields, body } = answer?;
        let decision = auth.decide(status, &fields);
        if !matches!(decision, AuthDecision::Denied | AuthDecision::Redirected) {
            discard(body).await;
            return Ok((decision, Response::new(status, Body::empty())));
        }
        let body = Limited::new(body, MAX_BODY).collect();
        let Ok(read) = timeout(routing.timeouts.response_header, body).await else {
            self.metrics.timeout_response_body.increment();
            return Err(Error::ResponseTimeout.into());
        };
        match read {
            Ok(body) => Ok((decision, pass_on(status, &fields, body.to_bytes(), id))),
            Err(error) if error.is::<LengthLimitError>() => {
                Ok((AuthDecision::Unusable, Response::new(status, Body::empty())))
            }
            Err(_) => Err(Error::Truncated.into()),
        }
    }

    /// Converts a request's head for the origin.
    fn translate(
        &self,
        asked: &Asked<'_>,
        head: &mut Head,
        framing: BodyFraming,
        policy: &FieldPolicy,
    ) -> Result<(), Error> {
        let &Asked { route, client, id, trusted, ruled, .. } = asked;
        match request::translate(head, framing, &route.head, client, id, trusted, policy) {
            Ok(removed) => self.metrics.count_removed(removed),
            Err(error) => {
                if error == Error::AmbiguousField {
                    self.metrics.ambiguous_fields_rejected.increment();
                }
                return Err(error);
            }
        }
        match ruled {
            Some((rules, variables)) => rules.request(head, variables),
            None => Ok(()),
        }
    }

    /// The protocol switch to request from the origin: none, if the route does not allow it, where HTTP/1.1 continues
    /// without (RFC 9110 §7.8).
    fn switch(&self, asked: &Asked<'_>, upgrade: &Upgrade, source: Option<Network>) -> Result<Option<Switch>, Error> {
        let &Asked { local, route, client, .. } = asked;
        let Some(protocol) = choose(upgrade, &route.upgrade).filter(|_| local.routing.max_tunnels > 0) else {
            return if client.protocol == Protocol::Http1 { Ok(None) } else { Err(Error::NoSuchTunnel) };
        };
        let source = Source::new(source.map(|network| (network.address, network.prefix)), client.connection);
        let Some((slot, evicts)) = self.tunnels.take(local.routing.max_tunnels, source) else {
            self.metrics.tunnels_refused.increment();
            return Err(Error::TunnelLimit);
        };
        if evicts {
            self.metrics.tunnels_evicted.increment();
        }
        Ok(Some(Switch::new(protocol, client.protocol, slot)))
    }

    /// Takes a request from `limiter`; a rejection is counted in `counters` too.
    fn limit(
        &self,
        limiter: &RateLimiter,
        variables: &Variables<'_>,
        counters: Option<&Arc<RouteMetrics>>,
    ) -> Result<(), Error> {
        match limiter.take(variables.client, std::time::Instant::now()) {
            TakenPermit::Admitted { forgot } => {
                if forgot {
                    self.metrics.limit_rate_addresses.increment();
                }
                Ok(())
            }
            TakenPermit::Denied(wait) => {
                self.metrics.limit_rate.increment();
                if let Some(counters) = counters {
                    counters.limited.increment();
                }
                Err(Error::TooManyRequests { retry_after: whole_seconds(wait) })
            }
        }
    }
}

/// A request after the server that decides about it has answered.
enum Authenticated {
    /// The request is served; its origin gets these fields.
    Admitted(Vec<(FieldName, Vec<u8>)>),
    /// The client gets this answer.
    Answered(Response),
}

/// `timeouts` for a request of which `spent` has passed; `None` if that makes no difference.
fn left_of(timeouts: &Timeouts, spent: Duration) -> Option<Box<Timeouts>> {
    let request = timeouts.request.filter(|_| !spent.is_zero())?.saturating_sub(spent);
    Some(Box::new(Timeouts { request: Some(request), ..*timeouts }))
}

/// `wait` for `Retry-After`: rounded up, and at least one.
fn whole_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// The route's own answer, if it has one.
fn own_answer(asked: &Asked<'_>, head: &Head) -> Result<Option<Response>, Error> {
    let &Asked { client, id, ruled, .. } = asked;
    let Some((rules, variables)) = ruled else { return Ok(None) };
    if let Some(redirect) = &rules.redirect {
        return Ok(Some(redirect.response(&rules.path(head)?, id, variables)));
    }
    if let Some(respond) = &rules.respond {
        let is_extended = client.protocol != Protocol::Http1 && head.upgrade.is_some();
        if is_extended && respond.is_success() {
            return Err(Error::NoSuchTunnel);
        }
        return Ok(Some(respond.response(id, variables)));
    }
    Ok(None)
}

/// A request that matches a route, without the route.
struct Asked<'a> {
    local: &'a Local,
    route: &'a Route,
    client: &'a Client,
    interim: &'a Interim,
    id: &'a str,
    /// Whether its client is a trusted proxy.
    trusted: bool,
    record: &'a Record,
    ruled: Option<Ruled<'a>>,
}

/// A route's rules, and the request's values for them.
type Ruled<'a> = (&'a Rules, &'a Variables<'a>);

/// The answer to an OPTIONS that must not be forwarded (RFC 9110 §7.6.2).
fn last_recipient(id: &str) -> Response {
    let mut response = Response::new(StatusCode::NO_CONTENT, Body::empty());
    response.fields.append(name::X_REQUEST_ID, id.as_bytes());
    response
}

impl Handler for Proxy {
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Result<Response, Abort>> {
        // Outside of the future, which would hold `exchange` as well.
        let Exchange { request: Request { mut head, body }, client, interim, record } = exchange;
        async move {
            let local = self.local();
            let trusted = forwarded::is_trusted(client.address.ip(), &local.routing.trusted);
            let id = forwarded::request_id(&head.fields, trusted, record.own_trace_id());
            let id = id.text();
            record.note(|facts| {
                facts.set_text(RequestText::RequestId, id.as_bytes());
                if trusted {
                    facts.behind = Some(local.routing.client(client.address.ip(), &head.fields));
                }
            });
            // The request's ID is known, which a new trace has as its own.
            record.trace();
            let chosen = local.routing.route(&head);
            let route = chosen.ok().flatten();
            let counters = route.and_then(|route| local.routes.get(route.number));
            let body = match counters {
                Some(counters) => counters.count_request(body),
                None => body,
            };
            let rules = match route {
                Some(route) => route.rules.as_deref(),
                None => local.routing.general_rules.as_ref(),
            };
            let variables = rules.map(|rules| rules.variables(&head, &client, &local.routing.trusted, id));
            let ruled = rules.zip(variables.as_ref());
            let served = match chosen {
                Ok(Some(route)) => {
                    let (client, interim, id, record) = (&client, &interim, id, &record);
                    let asked = Asked { local: &local, route, client, interim, id, trusted, record, ruled };
                    self.serve(&asked, &mut head, body).await
                }
                Ok(None) => Err(Error::NoRoute.into()),
                Err(other) => {
                    self.metrics.ambiguous_paths.increment();
                    error_log::log_ambiguous_path(id, &head, &other.name);
                    Err(Error::AmbiguousPath.into())
                }
            };
            let mut response = match served {
                Ok(response) => response,
                Err(Outcome::Answer(error)) => {
                    let client = variables.as_ref().map(|variables| variables.client);
                    error_log::log(error, id, &head, route.map(|route| &*route.name), client);
                    let (status, kind) = error.table();
                    if error == Error::Evicted {
                        record.evicted();
                    }
                    record.error(kind);
                    let pages = route.map_or(&local.routing.general_pages, |route| &route.pages);
                    let mut response = error.response(id, pages.find(status));
                    if error == Error::NoPassword
                        && let Some(users) = rules.and_then(|rules| rules.users.as_ref())
                    {
                        response.fields.set(name::WWW_AUTHENTICATE, users.challenge.as_bytes());
                    }
                    response
                }
                Err(Outcome::Abort(abort)) => return Err(abort),
            };
            // RFC 9110 §6.6.1. A 101 may do without, which over HTTP/2 and HTTP/3 becomes a 200.
            let is_final = !response.status.is_informational() || client.protocol != Protocol::Http1;
            if is_final && !response.fields.contains(name::DATE) {
                set_date(&mut response.fields);
            }
            if let Some((rules, variables)) = ruled {
                rules.response.apply(&mut response.fields, variables);
            }
            Ok(match counters {
                Some(counters) => {
                    counters.count(client.protocol, response.status);
                    counters.count_response(response)
                }
                None => response,
            })
        }
    }

    fn complete_rejection(&self, client: &Client, response: &mut Response) {
        // It sends the client to another connection, which has the fields (RFC 9110 §15.5.20).
        if response.status == StatusCode::MISDIRECTED_REQUEST {
            return;
        }
        if let Some(rules) = &self.local().routing.general_rules {
            let id = forwarded::request_id(&Fields::new(), false, None);
            rules.rejection(&mut response.fields, client, id.text());
        }
    }
}
