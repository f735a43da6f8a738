//! Selects the error of a CONNECTION_CLOSE: TLS alerts unchanged, so that a client whose certificate was rejected
//! learns the reason (RFC 8446 §6.2); errors that litequic has raised; any other as in s2n-quic's production formatter,
//! which hides reasons and internal errors.

use super::endpoint_state::EndpointState;
use s2n_quic::provider::connection_close_formatter::{ConnectionClose, Context, Formatter, Production};
use s2n_quic_core::{application, transport};
use std::sync::Arc;

const PRODUCTION: &Production = &Production;

/// Formatter that hides confidential reasons, but not TLS alerts: RFC 9001 §4.8 allows `handshake_failure` for all of
/// them. Sends the error that the state has for the current connection, if any, instead of s2n-quic's.
#[derive(Debug, Clone)]
pub(super) struct CloseFormatter(pub(super) Arc<EndpointState>);

impl CloseFormatter {
    fn transport_error(context: &Context<'_>, error: transport::Error) -> ConnectionClose<'static> {
        if error.try_into_tls_error().is_some() {
            return error.into();
        }
        PRODUCTION.format_transport_error(context, error)
    }
}

impl Formatter for CloseFormatter {
    /// Takes the raised error: this is the second of the two calls for a closing connection.
    fn format_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        let raised = self.0.with_table(|table| table.close_error.take());
        raised.map_or_else(|| Self::transport_error(context, error), ConnectionClose::from)
    }

    fn format_application_error(&self, context: &Context<'_>, error: application::Error) -> ConnectionClose<'_> {
        PRODUCTION.format_application_error(context, error)
    }

    fn format_early_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        let raised = self.0.with_table(|table| table.close_error);
        raised.map_or_else(|| Self::transport_error(context, error), ConnectionClose::from)
    }

    fn format_early_application_error(&self, context: &Context<'_>, error: application::Error) -> ConnectionClose<'_> {
        PRODUCTION.format_early_application_error(context, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::{crypto::tls, inet::SocketAddress};

    #[test]
    fn tls_alerts_are_sent_and_internal_errors_are_hidden() {
        let address = SocketAddress::default();
        let context = Context::new(&address);
        let formatter = CloseFormatter(EndpointState::for_tests());
        let alert: transport::Error = tls::Error { code: 116, reason: "certificate required" }.into();
        let told = formatter.format_early_transport_error(&context, alert);
        assert_eq!((told.error_code.as_u64(), told.reason), (0x174, Some(&b"certificate required"[..])));
        let fault = transport::Error::INTERNAL_ERROR.with_reason("a secret");
        let told = formatter.format_transport_error(&context, fault);
        assert_eq!(told.error_code, transport::Error::PROTOCOL_VIOLATION.code.as_varint());
        assert_eq!(told.reason, None);
    }

    #[test]
    fn a_pending_error_closes_one_connection() {
        let address = SocketAddress::default();
        let context = Context::new(&address);
        let state = EndpointState::for_tests();
        let formatter = CloseFormatter(Arc::clone(&state));
        state.with_table(|table| table.close_error = Some(transport::Error::STREAM_STATE_ERROR));
        let found = transport::Error::PROTOCOL_VIOLATION;
        let codes = || {
            let early = formatter.format_early_transport_error(&context, found).error_code.as_u64();
            (early, formatter.format_transport_error(&context, found).error_code.as_u64())
        };
        assert_eq!(codes(), (0x05, 0x05));
        assert_eq!(codes(), (0x0a, 0x0a));
    }
}
