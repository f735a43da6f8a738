//! Switches protocols (RFC 9110 §7.8): builds the request to an origin, and checks its 101. Pure but for the key of a
//! WebSocket.
//!
//! Over HTTP/1.1 the client's own WebSocket key is forwarded to the origin and the origin's answer to it back, as any
//! other field. HTTP/2 and HTTP/3 have none (RFC 8441 §5, RFC 9220), so that litequic generates the key and checks the
//! answer.

use super::slots::TunnelSlot;
use crate::{answer::Error, message::response};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;
use litequic_exchange::{Fields, Protocol, Upgrade, name};

const WEBSOCKET: &str = "websocket";
/// Suffix that a server hashes with the key (RFC 6455 §1.3).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A protocol switch that is requested from an origin.
#[derive(Debug)]
pub(crate) struct ProtocolSwitch {
    /// Protocol to switch to.
    pub(crate) protocol: String,
    /// Whether the client used extended CONNECT, where any 2xx would be success.
    extended: bool,
    key: Option<WebsocketKey>,
    /// Slot for the tunnel.
    pub(crate) slot: TunnelSlot,
}

/// WebSocket key that litequic has generated.
#[derive(Debug)]
struct WebsocketKey {
    key: String,
    /// Value of `Sec-WebSocket-Accept` for the key.
    accept: String,
}

/// Chooses the first of the protocols that a client offers that is among `allowed`, which are in lower case. Names have
/// no case.
pub(crate) fn choose_protocol<'a>(asked: &Upgrade, allowed: &'a [String]) -> Option<&'a str> {
    let asked = asked.0.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let allowed = |name: &[u8]| allowed.iter().find(|other| other.as_bytes().eq_ignore_ascii_case(name));
    asked.filter_map(allowed).map(String::as_str).next()
}

impl ProtocolSwitch {
    /// A switch to `protocol`, for a client of the HTTP version `client`.
    pub(crate) fn new(protocol: &str, client: Protocol, slot: TunnelSlot) -> Self {
        let extended = client != Protocol::Http1;
        let key = (extended && protocol == WEBSOCKET).then(|| WebsocketKey::from_nonce(rand::random()));
        Self { protocol: protocol.to_owned(), extended, key, slot }
    }

    /// Adds the fields of the switch to a head that is converted for the origin already.
    pub(crate) fn add_request_fields(&self, fields: &mut Fields) {
        // Two options in `Connection` are more than some origins expect, and trailers do not occur here.
        fields.remove_field(name::TE);
        fields.set_field(name::CONNECTION, b"Upgrade");
        fields.set_field(name::UPGRADE, self.protocol.as_bytes());
        if let Some(WebsocketKey { key, .. }) = &self.key {
            fields.set_field(name::SEC_WEBSOCKET_KEY, key.as_bytes());
        }
    }

    /// Whether `status` tells the client that the protocol was switched, which this origin has not done.
    pub(crate) fn is_misleading(&self, status: StatusCode) -> bool {
        self.extended && status.is_success()
    }

    /// Converts the fields of a 101 for the client, without those of the origin's connection.
    ///
    /// # Errors
    ///
    /// The 101 does not answer the request.
    pub(crate) fn accept_response(&self, fields: &mut Fields) -> Result<(), Error> {
        let mut to = fields.all_values(name::UPGRADE);
        let named = |name: &[u8]| name.trim_ascii().eq_ignore_ascii_case(self.protocol.as_bytes());
        let switches = to.next().is_some_and(named) && to.next().is_none();
        drop(to);
        let names_it = fields.list_members(name::CONNECTION).any(|option| option.eq_ignore_ascii_case(b"upgrade"));
        if !switches || !names_it {
            return Err(Error::SwitchFailed);
        }
        if let Some(WebsocketKey { accept, .. }) = &self.key {
            let is_second = fields.all_values(name::SEC_WEBSOCKET_ACCEPT).nth(1).is_some();
            if is_second || fields.get(name::SEC_WEBSOCKET_ACCEPT) != Some(accept.as_bytes()) {
                return Err(Error::SwitchFailed);
            }
            fields.remove_field(name::SEC_WEBSOCKET_ACCEPT);
        }
        response::translate_interim(fields);
        Ok(())
    }
}

impl WebsocketKey {
    /// Computes key and answer (RFC 6455 §4.2.2). Base64 fits into every field.
    fn from_nonce(nonce: [u8; 16]) -> Self {
        let key = BASE64_STANDARD.encode(nonce);
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), WEBSOCKET_GUID].concat());
        Self { key, accept: BASE64_STANDARD.encode(hash) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::TunnelPool;
    use litequic_exchange::FieldNameRef;
    use litequic_resources::fairness::ClientSource;

    fn slot() -> TunnelSlot {
        TunnelPool::default().take_tunnel_slot(1, ClientSource::new(None, 1)).unwrap().0
    }

    fn switch(client: Protocol) -> ProtocolSwitch {
        let mut switch = ProtocolSwitch::new(WEBSOCKET, client, slot());
        if switch.extended {
            // This is the example of RFC 6455 §1.3.
            switch.key = Some(WebsocketKey::from_nonce(*b"the sample nonce"));
        }
        switch
    }

    fn accepted(client: Protocol, lines: &[(&'static str, &'static str)]) -> Result<Vec<String>, Error> {
        let mut fields =
            lines.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect();
        switch(client).accept_response(&mut fields)?;
        Ok(fields.iter().map(|line| line.name_str().to_owned()).collect())
    }

    #[test]
    fn the_first_protocol_that_the_route_lets_pass_is_chosen() {
        let allowed = ["websocket", "ietf/1"].map(str::to_owned);
        for (asked, expected) in [
            ("websocket", Some("websocket")),
            ("WebSocket", Some("websocket")),
            ("h2c, IETF/1 ,websocket", Some("ietf/1")),
            ("websocket/13", None),
            ("h2c", None),
            ("", None),
            (",", None),
            ("web socket", None),
        ] {
            let chosen = choose_protocol(&Upgrade(asked.as_bytes().into()), &allowed);
            assert_eq!(chosen, expected, "{asked}");
        }
        assert!(choose_protocol(&Upgrade(Box::default()), &[]).is_none());
    }

    #[test]
    fn litequic_generates_websocket_keys_for_http_2_and_3_only() {
        for (client, expected) in [(Protocol::Http1, Some("theirs")), (Protocol::Http2, None), (Protocol::Http3, None)]
        {
            let mut fields = Fields::from_iter([(name::SEC_WEBSOCKET_KEY, &b"theirs"[..]), (name::TE, b"trailers")]);
            switch(client).add_request_fields(&mut fields);
            let key = fields.get(name::SEC_WEBSOCKET_KEY);
            assert_eq!(key, Some(expected.unwrap_or("dGhlIHNhbXBsZSBub25jZQ==").as_bytes()));
            assert_eq!(fields.get(name::CONNECTION), Some(&b"Upgrade"[..]));
            assert_eq!(fields.get(name::UPGRADE), Some(&b"websocket"[..]));
            assert!(!fields.contains(name::TE));
        }
        let one = ProtocolSwitch::new("other", Protocol::Http3, slot());
        assert!(one.key.is_none());
    }

    #[test]
    fn a_101_is_checked_and_keeps_what_is_the_clients() {
        const ACCEPT: (&str, &str) = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        const TO: (&str, &str) = ("upgrade", "WebSocket");
        const VIA: (&str, &str) = ("connection", "keep-alive, Upgrade");
        let subprotocol = ("sec-websocket-protocol", "chat");
        let kept = |client, lines: &[_]| accepted(client, lines).map(|names| names.join(" "));
        assert_eq!(kept(Protocol::Http3, &[TO, VIA, ACCEPT, subprotocol]).unwrap(), "sec-websocket-protocol");
        assert_eq!(kept(Protocol::Http1, &[TO, VIA, ACCEPT]).unwrap(), "sec-websocket-accept");
        // The client checks this value itself.
        assert_eq!(kept(Protocol::Http1, &[TO, VIA, ("sec-websocket-accept", "x")]).unwrap(), "sec-websocket-accept");
        assert_eq!(kept(Protocol::Http1, &[TO, VIA, ("content-length", "5"), ("alt-svc", "h3")]).unwrap(), "");
        let wrong: [&[_]; 8] = [
            &[VIA, ACCEPT],
            &[TO, ACCEPT],
            &[TO, VIA],
            &[TO, TO, VIA, ACCEPT],
            &[("upgrade", "websocket, h2c"), VIA, ACCEPT],
            &[("upgrade", "h2c"), VIA, ACCEPT],
            &[TO, VIA, ("sec-websocket-accept", "S3pPLMBiTxaQ9kYGzzhZRbK+xOo=")],
            &[TO, VIA, ACCEPT, ACCEPT],
        ];
        for lines in wrong {
            assert_eq!(accepted(Protocol::Http2, lines), Err(Error::SwitchFailed), "{lines:?}");
        }
    }

    #[test]
    fn a_success_status_without_a_switch_misleads_http_2_and_3() {
        for (client, status, expected) in [
            (Protocol::Http1, 200, false),
            (Protocol::Http2, 200, true),
            (Protocol::Http3, 204, true),
            (Protocol::Http3, 302, false),
            (Protocol::Http3, 403, false),
        ] {
            assert_eq!(switch(client).is_misleading(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
