//! Converts heads without sending anything, for measurements and tests.

use crate::answer::Error;
use crate::message::{BodyFraming, FieldPolicy, forwarded, request, response};
use crate::routing::Routing;
use http::StatusCode;
use litequic_exchange::{Client, Fields, Head};

/// Converts the head of `client`'s request, which has no body, for its origin, as a [`Proxy`](crate::Proxy) does: for
/// measurements of the conversion alone.
///
/// # Errors
///
/// The request has no route, or is never forwarded.
pub fn convert_request_head(
    routing: &Routing,
    head: &mut Head,
    client: &Client,
) -> Result<(), impl std::error::Error + use<>> {
    let route = routing.find_route(head).map_err(|_| Error::AmbiguousPath)?.ok_or(Error::NoRoute)?;
    let trusted = routing.trusted.covers_address(client.address.ip());
    let id = forwarded::choose_request_id(&head.fields, trusted, None);
    let id = id.id_text();
    let rules = route.rules.as_deref();
    let variables = rules.map(|rules| (rules, rules.read_variables(head, client, &routing.trusted, id)));
    let origin = route.origin.as_deref().and_then(|name| routing.origins.get(name));
    let policy = origin.map(|origin| FieldPolicy::from_origin(&origin.config)).unwrap_or_default();
    request::translate_request(head, BodyFraming::None, &route.head, client, id, trusted, &policy)?;
    match variables {
        Some((rules, variables)) => rules.change_request(head, &variables),
        None => Ok(()),
    }
}

/// Converts the fields of an origin's response to a `method` request for the client, as [`convert_request_head`] does
/// with its request's head. `length` is the body's, if it is known.
///
/// # Errors
///
/// The response cannot be forwarded.
pub fn convert_response_head(
    status: StatusCode,
    fields: &mut Fields,
    method: &http::Method,
    length: Option<u64>,
) -> Result<(), impl std::error::Error + use<>> {
    response::translate_response(status, fields, method, length)
}
