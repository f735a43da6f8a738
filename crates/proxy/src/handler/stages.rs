//! Runs the stages of a request, in their order. `handle` has those of every request: find a route, serve, answer an
//! error, finish the response. [`Proxy::serve_routed`] has those of a request that has a route. The first stage that
//! fails decides the response. A stage has the name of its configuration key or metric: search for it in documents and
//! logs.

use super::error_log;
use super::proxy::{Proxy, WorkerRouting};
use crate::access::{
    AuthDecision, AuthFields, AuthRule, Credentials, MAX_AUTH_BODY, PasswordCheck, TakenPermit, UsersRule,
    build_auth_response, client_key,
};
use crate::answer::{Error, discard_body};
use crate::connection::{TrailerRules, Upload};
use crate::forward::{ForwardFailure, ForwardedRequest, forward_request};
use crate::message::{BodyFraming, FieldPolicy, StreamingCall, forwarded, grpc, request, response};
use crate::metrics::RouteMetrics;
use crate::routing::CompiledRoute;
use crate::rules::{RuleSet, Variables};
use crate::tunnel::{ProtocolSwitch, choose_protocol};
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use litequic_base::timers::{self, timeout};
use litequic_config::Timeouts;
use litequic_exchange::{
    Abort, Body, CertificateRequest, Client, Exchange, FieldName, Fields, Handler, Head, InterimSender, Protocol,
    Request, RequestRecord, RequestText, Response, Upgrade, name, set_date,
};
use litequic_resources::fairness::ClientSource;
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

impl Handler for Proxy {
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Result<Response, Abort>> {
        // Outside of the future, which would hold `exchange` as well.
        let Exchange { request: Request { mut head, body }, client, interim, record } = exchange;
        async move {
            let local = self.current_routing();
            let trusted = local.routing.trusted.covers_address(client.address.ip());
            let id = forwarded::choose_request_id(&head.fields, trusted, record.own_trace_id());
            let id = id.id_text();
            record.update_facts(|facts| {
                facts.set_request_text(RequestText::RequestId, id.as_bytes());
                if trusted {
                    facts.proxied_client = Some(local.routing.forwarded_client(client.address.ip(), &head.fields));
                }
            });
            // The request's ID, which a new trace has as its own, must be known before.
            record.decide_propagation();
            let call = StreamingCall::classify_call(&head, client.protocol);
            let is_grpc = call.is_some_and(|call| call.is_grpc);
            let chosen = local.routing.find_route(&head);
            let route = chosen.ok().flatten();
            let counters = route.and_then(|route| local.routes.get(route.number));
            let body = match counters {
                Some(counters) => counters.count_request_bytes(body),
                None => body,
            };
            let rules = match route {
                Some(route) => route.rules.as_deref(),
                None => local.routing.general_rules.as_ref(),
            };
            let variables = rules.map(|rules| rules.read_variables(&head, &client, &local.routing.trusted, id));
            let ruled = rules.zip(variables.as_ref());
            let served = match chosen {
                Ok(Some(route)) => {
                    let (client, interim, id, record) = (&client, &interim, id, &record);
                    let routed = RoutedRequest {
                        local: &local,
                        route,
                        client,
                        interim,
                        id,
                        trusted,
                        record,
                        call,
                        rules: ruled,
                    };
                    self.serve_routed(&routed, &mut head, body).await
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
                Err(ForwardFailure::Answer(error)) => {
                    let error = self.metrics.explain_eviction(error);
                    let mut response = answer_error(error, &local, route, ruled, id, &head, &record);
                    if is_grpc {
                        grpc::replace_error_response(&mut response, error);
                    }
                    response
                }
                Err(ForwardFailure::Abort(abort)) => return Err(abort),
            };
            // RFC 9110 §6.6.1. A 101 may do without, which over HTTP/2 and HTTP/3 becomes a 200.
            let is_final = !response.status.is_informational() || client.protocol != Protocol::Http1;
            if is_final && !response.fields.contains(name::DATE) {
                set_date(&mut response.fields);
            }
            if let Some((rules, variables)) = ruled {
                rules.response.change_fields(&mut response.fields, variables);
            }
            if is_grpc {
                self.metrics.record_grpc_status(&response.fields, &record);
            }
            Ok(match counters {
                Some(counters) => {
                    counters.count_status(client.protocol, response.status);
                    counters.count_response_bytes(response)
                }
                None => response,
            })
        }
    }

    fn complete_rejection(&self, client: &Client, response: &mut Response) {
        // A 421 sends the client to another connection, which has the fields (RFC 9110 §15.5.20).
        if response.status == StatusCode::MISDIRECTED_REQUEST {
            return;
        }
        if let Some(rules) = &self.current_routing().routing.general_rules {
            let id = forwarded::choose_request_id(&Fields::new(), false, None);
            rules.change_rejection(&mut response.fields, client, id.id_text());
        }
    }
}

/// A request that has a route, without its head and body.
struct RoutedRequest<'a> {
    local: &'a WorkerRouting,
    route: &'a CompiledRoute,
    client: &'a Client,
    interim: &'a InterimSender,
    id: &'a str,
    /// Whether the client is a trusted proxy.
    trusted: bool,
    record: &'a RequestRecord,
    call: Option<StreamingCall>,
    rules: Option<RouteRules<'a>>,
}

/// Rules of a route, and the request's values for them.
type RouteRules<'a> = (&'a RuleSet, &'a Variables<'a>);

impl RoutedRequest<'_> {
    /// Address of the client, which a trusted proxy names in `fields`.
    fn client_address(&self, fields: &Fields) -> IpAddr {
        self.local.routing.forwarded_client(self.client.address.ip(), fields)
    }

    /// Source by whose share of pools, queues and tunnels the request is served.
    fn request_source(&self, fields: &Fields) -> ClientSource {
        let network = self.local.routing.forwarded_source(self.client.address.ip(), fields);
        ClientSource::new(network.map(|network| (network.address, network.prefix)), self.client.connection)
    }

    fn route_counters(&self) -> Option<&Arc<RouteMetrics>> {
        self.local.routes.get(self.route.number)
    }
}

impl Proxy {
    /// Runs the stages of a request that has a route, and returns the first response, which may be the origin's, with
    /// the auth server's fields for the client.
    async fn serve_routed(
        &self,
        routed: &RoutedRequest<'_>,
        head: &mut Head,
        body: Body,
    ) -> Result<Response, ForwardFailure> {
        let &RoutedRequest { local, route, client, interim, id, record, call, rules: ruled, .. } = routed;
        record.update_facts(|facts| {
            facts.route = Some(Arc::clone(&route.name));
            facts.http_route = Some(Arc::clone(&route.http_route));
            facts.origin = route.origin.as_deref().map(Into::into);
        });
        self.check_denied_clients(routed, &head.fields)?;
        self.check_maintenance(routed)?;
        check_addresses(routed)?;
        let mut granted: Vec<(FieldName, Vec<u8>)> = Vec::new();
        let mut given = None;
        if let Some((rules, variables)) = ruled
            && let Some(users) = &rules.users
        {
            // Boxed, so that the future of a request on another route is not larger because of it.
            let name = Box::pin(self.check_users(routed, users, variables.client, &head.fields)).await?;
            granted.push((name::REMOTE_USER.into(), name));
            head.fields.remove_field(name::AUTHORIZATION);
        }
        self.limit_rate(routed)?;
        check_client_certificate(routed)?;
        let spent = match ruled.and_then(|(rules, _)| rules.auth.as_ref()) {
            // Boxed for the same reason.
            Some(auth) => match Box::pin(self.check_auth(routed, auth, head)).await? {
                (CheckedAuth::Admitted(mut fields), took) => {
                    granted.append(&mut fields.to_origin);
                    given = Some(fields).filter(|fields| !fields.cookies.is_empty());
                    took
                }
                (CheckedAuth::Answered(answer), _) => return Ok(answer),
            },
            None => Duration::ZERO,
        };
        let complete = |mut response: Response| {
            if let Some(given) = &given {
                given.add_to_response(&mut response.fields);
            }
            response
        };
        if let Some(answer) = local_response(routed, head)? {
            return Ok(complete(answer));
        }
        // A checked configuration has the origin of every route.
        let origin = route.origin.as_deref().and_then(|name| local.origins.get(name)).ok_or(Error::NoRoute)?;
        if !request::count_down_max_forwards(&head.method, &mut head.fields) {
            return Ok(options_response(id));
        }
        let framing = BodyFraming::from_body(&body);
        self.limit_body_bytes(framing, route.max_body_bytes)?;
        let source = routed.request_source(&head.fields);
        let wish = origin.find_affinity(&head.fields, || routed.client_address(&head.fields));
        let switch = match head.upgrade.take() {
            Some(upgrade) => self.switch_protocol(routed, &upgrade, source)?,
            None => None,
        };
        self.translate_head(routed, head, framing, &origin.policy)?;
        if let Some((rules, _)) = ruled {
            rules.set_granted(&mut head.fields, &granted);
        }
        if let Some(switch) = &switch {
            switch.add_request_fields(&mut head.fields);
        }
        request::remove_trace_context(&mut head.fields, record.decide_propagation());
        let own = ruled.and_then(|(rules, _)| rules.timeouts.as_ref());
        let timeouts = match (own, call) {
            (Some((timeouts, _)), None) | (Some((_, timeouts)), Some(_)) => timeouts,
            (None, None) => &local.routing.timeouts,
            (None, Some(_)) => &local.routing.streaming_timeouts,
        };
        let left = remaining_timeouts(timeouts, spent);
        let timeouts = left.as_deref().unwrap_or(timeouts);
        let upload = Upload::new(body, framing, route.max_body_bytes, || TrailerRules {
            rules: route.rules.clone(),
            methods_matter: route.head.methods_matter,
            policy: origin.policy.clone(),
            metrics: Arc::clone(&self.metrics),
        });
        let sending = ForwardedRequest {
            head,
            upload,
            client,
            source,
            interim,
            record,
            traced: record,
            timeouts,
            call,
            rules: route.rules.as_ref(),
            switch,
            affinity: wish,
        };
        let began = timers::turn_time();
        let mut answer = forward_request(origin, sending).await;
        if let Ok(response) = &mut answer {
            // HTTP/2 and HTTP/3 have no `Upgrade` (RFC 9113 §8.2.2, RFC 9114 §4.2).
            let permitted = if client.protocol == Protocol::Http1 { &route.upgrade[..] } else { &[] };
            response::filter_upgrade(&mut response.fields, permitted);
        }
        let took = timers::turn_time().saturating_duration_since(began);
        self.metrics.origin_duration.observe_time(took);
        record.update_facts(|facts| facts.origin_time = Some(took));
        // A page of the route replaces an error of the origin (`intercept_errors`).
        let page = answer
            .as_ref()
            .ok()
            .filter(|_| call.is_none())
            .and_then(|response| route.pages.find_intercepting(response.status));
        match (answer, page) {
            (Ok(response), Some(page)) => {
                let instead = page.replace_response(&response);
                discard_body(response.body).await;
                Ok(complete(instead))
            }
            (answer, _) => answer.map(complete),
        }
    }

    /// Fails if the operator denies the client, whose address may come from a trusted proxy; counted in `denied`. The
    /// peer's own address was checked when it connected, and a client that has moved since is at another one.
    fn check_denied_clients(&self, routed: &RoutedRequest<'_>, fields: &Fields) -> Result<(), Error> {
        if self.denied.is_empty()
            || !self.denied.is_client_denied(routed.client_address(fields), std::time::Instant::now)
        {
            return Ok(());
        }
        self.metrics.denied.increment();
        Err(Error::AddressDenied)
    }

    /// Fails if the route is in maintenance; counted in `maintenance_responses`.
    fn check_maintenance(&self, routed: &RoutedRequest<'_>) -> Result<(), Error> {
        let Some(retry_after) = routed.rules.and_then(|(rules, _)| rules.maintenance) else { return Ok(()) };
        self.metrics.maintenance_responses.increment();
        Err(Error::Maintenance { retry_after })
    }

    /// Checks the password in `fields`, which `client` has sent, against `users` of the route, and returns the user's
    /// name; counted in `password_checks`.
    ///
    /// # Errors
    ///
    /// The password is missing or wrong, or cannot be checked now.
    async fn check_users(
        &self,
        routed: &RoutedRequest<'_>,
        rule: &UsersRule,
        client: IpAddr,
        fields: &Fields,
    ) -> Result<Vec<u8>, Error> {
        let denied = |error: Error| {
            if let Some(counters) = routed.route_counters() {
                counters.denied_passwords.increment();
            }
            error
        };
        let Some(credentials) = Credentials::from_fields(fields) else {
            self.metrics.passwords_missing.increment();
            return Err(denied(Error::NoPassword));
        };
        let name = credentials.name_field();
        let checked = routed
            .local
            .routing
            .passwords
            .check_password(&rule.users, credentials, routed.request_source(fields), client)
            .await;
        let (counter, error) = match checked {
            PasswordCheck::Remembered => (&self.metrics.passwords_remembered, None),
            PasswordCheck::Right => (&self.metrics.passwords_right, None),
            PasswordCheck::Wrong => (&self.metrics.passwords_wrong, Some(denied(Error::NoPassword))),
            PasswordCheck::Limited(wait) => {
                let error = Error::TooManyRequests { retry_after: retry_after_seconds(wait) };
                (&self.metrics.passwords_limited, Some(denied(error)))
            }
            PasswordCheck::Busy => (&self.metrics.passwords_busy, Some(Error::PasswordQueue)),
        };
        counter.increment();
        // A user who has signed in has a name that is a field's value.
        error.map_or_else(|| name.ok_or(Error::NoPassword), Err)
    }

    /// Fails if the client has used up the route's `rate_limit`; counted in `limit_reached`, and for the route.
    fn limit_rate(&self, routed: &RoutedRequest<'_>) -> Result<(), Error> {
        let Some((rules, variables)) = routed.rules else { return Ok(()) };
        let Some(limiter) = &rules.limiter else { return Ok(()) };
        match limiter.take_permit(&client_key(variables.client), std::time::Instant::now()) {
            TakenPermit::Admitted { evicted: forgot } => {
                if forgot {
                    self.metrics.limit_rate_addresses.increment();
                }
                Ok(())
            }
            TakenPermit::Denied(wait) => {
                self.metrics.limit_rate.increment();
                if let Some(counters) = routed.route_counters() {
                    counters.limited.increment();
                }
                Err(Error::TooManyRequests { retry_after: retry_after_seconds(wait) })
            }
        }
    }

    /// Lets the server of `auth` decide about the request with `head`; counted in `auth_requests`. The body is not read
    /// meanwhile, and no decision is cached. Also returns the time that the decision took.
    ///
    /// # Errors
    ///
    /// The response is missing, or cannot be followed: the request is not served.
    async fn check_auth(
        &self,
        routed: &RoutedRequest<'_>,
        auth: &AuthRule,
        head: &Head,
    ) -> Result<(CheckedAuth, Duration), ForwardFailure> {
        let &RoutedRequest { route, record, id, .. } = routed;
        let began = Instant::now();
        let decided = self.request_auth(routed, auth, head).await;
        let took = began.elapsed();
        record.update_facts(|facts| facts.auth_time = Some(took));
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
                    AuthDecision::Admitted(fields) => Ok((CheckedAuth::Admitted(Box::new(fields)), took)),
                    AuthDecision::Denied | AuthDecision::Redirected => {
                        if let Some(counters) = routed.route_counters() {
                            counters.denied_auth.increment();
                        }
                        let route = &*route.name;
                        tracing::debug!(request, route, origin, status, "the auth server denied the request");
                        Ok((CheckedAuth::Answered(answer), took))
                    }
                    AuthDecision::Unusable => {
                        tracing::warn!(
                            request,
                            origin,
                            status,
                            "the auth server's answer neither grants nor denies access"
                        );
                        Err(Error::AuthAnswer.into())
                    }
                }
            }
            Err(outcome) => {
                self.metrics.auth_failed.increment();
                if let ForwardFailure::Answer(error) = outcome {
                    let (request, origin) = (id, &auth.origin);
                    tracing::info!(request, origin, %error, "cannot get the auth server's decision");
                }
                Err(outcome)
            }
        }
    }

    /// Sends the auth request about the request with `head` to the server of `auth`; returns its decision, and the
    /// response for the client, which is empty unless the client gets one.
    async fn request_auth(
        &self,
        routed: &RoutedRequest<'_>,
        auth: &AuthRule,
        head: &Head,
    ) -> Result<(AuthDecision, Response), ForwardFailure> {
        let &RoutedRequest { local, route, client, id, trusted, rules: ruled, record, .. } = routed;
        // A checked configuration has this origin.
        let origin = local.origins.get(&auth.origin).ok_or(Error::NoRoute)?;
        let routing = &local.routing;
        let withheld = |plain: &str| ruled.is_some_and(|(rules, _)| rules.withholds_field(plain));
        let mut to_it = auth.build_auth_request(head, withheld);
        // Removed fields are counted when the request itself is sent.
        request::translate_request(&mut to_it, BodyFraming::None, &route.head, client, id, trusted, &origin.policy)?;
        AuthRule::describe_request(head, &mut to_it);
        request::remove_trace_context(&mut to_it.fields, record.decide_propagation());
        let sending = ForwardedRequest {
            head: &to_it,
            upload: None,
            client,
            source: routed.request_source(&head.fields),
            interim: &InterimSender::default(),
            record: &RequestRecord::default(),
            traced: record,
            timeouts: &routing.timeouts,
            call: None,
            rules: None,
            switch: None,
            affinity: origin.find_affinity(&head.fields, || routed.client_address(&head.fields)),
        };
        let began = Instant::now();
        let answer = forward_request(origin, sending).await;
        self.metrics.origin_duration.observe_time(began.elapsed());
        let Response { status, fields, body } = answer?;
        let decision = auth.read_decision(status, &fields);
        if !matches!(decision, AuthDecision::Denied | AuthDecision::Redirected) {
            discard_body(body).await;
            return Ok((decision, Response::new(status, Body::empty())));
        }
        let body = Limited::new(body, MAX_AUTH_BODY).collect();
        let Ok(read) = timeout(routing.timeouts.response_header, body).await else {
            self.metrics.timeout_response_body.increment();
            return Err(Error::ResponseTimeout.into());
        };
        match read {
            Ok(body) => Ok((decision, build_auth_response(status, &fields, body.to_bytes(), id))),
            Err(error) if error.is::<LengthLimitError>() => {
                Ok((AuthDecision::Unusable, Response::new(status, Body::empty())))
            }
            Err(_) => Err(Error::Truncated.into()),
        }
    }

    /// Fails if the length of a request's body is larger than `max_body_bytes`; counted in `limit_reached`. A body of
    /// unknown length is cut off at that limit.
    fn limit_body_bytes(&self, framing: BodyFraming, max_body_bytes: Option<u64>) -> Result<(), Error> {
        match (framing, max_body_bytes) {
            (BodyFraming::Length(length), Some(allowed)) if length > allowed => {
                self.metrics.limit_body_bytes.increment();
                Err(Error::BodyTooLarge)
            }
            _ => Ok(()),
        }
    }

    /// Converts a request's head for the origin, and applies the route's `request_headers`; counted in
    /// `ambiguous_fields` and `reserved_fields`.
    fn translate_head(
        &self,
        routed: &RoutedRequest<'_>,
        head: &mut Head,
        framing: BodyFraming,
        policy: &FieldPolicy,
    ) -> Result<(), Error> {
        let &RoutedRequest { route, client, id, trusted, rules: ruled, .. } = routed;
        match request::translate_request(head, framing, &route.head, client, id, trusted, policy) {
            Ok(removed) => self.metrics.count_removed(removed),
            Err(error) => {
                if error == Error::AmbiguousField {
                    self.metrics.ambiguous_fields_rejected.increment();
                }
                return Err(error);
            }
        }
        match ruled {
            Some((rules, variables)) => rules.change_request(head, variables),
            None => Ok(()),
        }
    }

    /// The switch of protocols to request from the origin, with a slot for its tunnel: none, if `upgrade` of the route
    /// does not allow it, where HTTP/1.1 continues without (RFC 9110 §7.8); counted in `tunnels_refused`.
    fn switch_protocol(
        &self,
        routed: &RoutedRequest<'_>,
        upgrade: &Upgrade,
        source: ClientSource,
    ) -> Result<Option<ProtocolSwitch>, Error> {
        let &RoutedRequest { local, route, client, .. } = routed;
        let Some(protocol) = choose_protocol(upgrade, &route.upgrade) else {
            return if client.protocol == Protocol::Http1 { Ok(None) } else { Err(Error::NoSuchTunnel) };
        };
        let Some((slot, evicts)) = self.tunnels.take_tunnel_slot(local.routing.max_tunnels, source) else {
            self.metrics.tunnels_refused.increment();
            return Err(Error::TunnelLimit);
        };
        if evicts {
            self.metrics.tunnels_evicted.increment();
        }
        Ok(Some(ProtocolSwitch::new(protocol, client.protocol, slot)))
    }
}

/// Result of asking the auth server.
enum CheckedAuth {
    /// The request is served.
    Admitted(Box<AuthFields>),
    /// The client gets this response.
    Answered(Response),
}

/// Fails if a rule of the route, `deny` or `allow`, does not admit the client's address; counted for the route.
fn check_addresses(routed: &RoutedRequest<'_>) -> Result<(), Error> {
    let Some((rules, variables)) = routed.rules else { return Ok(()) };
    if rules.addresses.as_ref().is_none_or(|addresses| addresses.admits_address(variables.client)) {
        return Ok(());
    }
    if let Some(counters) = routed.route_counters() {
        counters.denied_addresses.increment();
    }
    Err(Error::AddressDenied)
}

/// Fails if the route has `client_certificate`, and the client has none.
fn check_client_certificate(routed: &RoutedRequest<'_>) -> Result<(), Error> {
    let is_required = routed.route.head.certificate == CertificateRequest::Required;
    if is_required && routed.client.identity.certificate.is_none() { Err(Error::NoCertificate) } else { Ok(()) }
}

/// Value of `Retry-After` for `wait`, in seconds: rounded up, and at least one.
fn retry_after_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// The route's own response, if it has `redirect` or `respond`.
fn local_response(routed: &RoutedRequest<'_>, head: &Head) -> Result<Option<Response>, Error> {
    let &RoutedRequest { client, id, rules: ruled, .. } = routed;
    let Some((rules, variables)) = ruled else { return Ok(None) };
    if let Some(redirect) = &rules.redirect {
        return Ok(Some(redirect.redirect_response(&rules.rewritten_path(head)?, id, variables)));
    }
    if let Some(respond) = &rules.respond {
        let is_extended = client.protocol != Protocol::Http1 && head.upgrade.is_some();
        if is_extended && respond.is_success() {
            return Err(Error::NoSuchTunnel);
        }
        return Ok(Some(respond.fixed_response(id)));
    }
    Ok(None)
}

/// The response to an OPTIONS that must not be forwarded (RFC 9110 §7.6.2).
fn options_response(id: &str) -> Response {
    let mut response = Response::new(StatusCode::NO_CONTENT, Body::empty());
    response.fields.append(name::X_REQUEST_ID, id.as_bytes());
    response
}

/// `timeouts` for a request of which `spent` has passed; `None` if that makes no difference.
fn remaining_timeouts(timeouts: &Timeouts, spent: Duration) -> Option<Box<Timeouts>> {
    let request = timeouts.request.filter(|_| !spent.is_zero())?.saturating_sub(spent);
    Some(Box::new(Timeouts { request: Some(request), ..*timeouts }))
}

/// Logs `error`, and builds the response to the failed request, with the page that the route has in `error_pages`.
fn answer_error(
    error: Error,
    local: &WorkerRouting,
    route: Option<&CompiledRoute>,
    ruled: Option<RouteRules<'_>>,
    id: &str,
    head: &Head,
    record: &RequestRecord,
) -> Response {
    error_log::log_error(
        error,
        id,
        head,
        route.map(|route| &*route.name),
        ruled.map(|(_, variables)| variables.client),
    );
    let (status, kind) = error.status_and_kind();
    if error == Error::Evicted {
        record.record_eviction();
    }
    record.record_error(kind);
    let pages = route.map_or(&local.routing.general_pages, |route| &route.pages);
    let mut response = error.error_response(id, pages.find_page(status));
    if error == Error::NoPassword
        && let Some(users) = ruled.and_then(|(rules, _)| rules.users.as_ref())
    {
        response.fields.set_field(name::WWW_AUTHENTICATE, users.challenge.as_bytes());
    }
    response
}
