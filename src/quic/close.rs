//! What a CONNECTION_CLOSE tells the client: TLS alerts as they are, so that one whose certificate was refused learns why
//! (RFC 8446 §6.2); anything else as s2n-quic has it in production, which hides reasons and our own faults.

use s2n_quic::provider::connection_close_formatter::{ConnectionClose, Context, Formatter, Production};
use s2n_quic_core::{application, transport};

const PRODUCTION: &Production = &Production;

/// Hides what is nobody's business, but not the alerts: RFC 9001 §4.8 allows `handshake_failure` for all of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alerts;

impl Formatter for Alerts {
    fn format_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        if error.try_into_tls_error().is_some() {
            return error.into();
        }
        PRODUCTION.format_transport_error(context, error)
    }

    fn format_application_error(&self, context: &Context<'_>, error: application::Error) -> ConnectionClose<'_> {
        PRODUCTION.format_application_error(context, error)
    }

    fn format_early_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        self.format_transport_error(context, error)
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
    fn alerts_are_told_and_our_own_faults_are_not() {
        let address = SocketAddress::default();
        let context = Context::new(&address);
        let alert: transport::Error = tls::Error { code: 116, reason: "certificate required" }.into();
        let told = Alerts.format_early_transport_error(&context, alert);
        assert_eq!((told.error_code.as_u64(), told.reason), (0x174, Some(&b"certificate required"[..])));
        let fault = transport::Error::INTERNAL_ERROR.with_reason("a secret");
        let told = Alerts.format_transport_error(&context, fault);
        assert_eq!(told.error_code, transport::Error::PROTOCOL_VIOLATION.code.as_varint());
        assert_eq!(told.reason, None);
    }
}
