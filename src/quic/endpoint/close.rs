//! The error in a CONNECTION_CLOSE: TLS alerts as they are, so that a client whose certificate was rejected learns why
//! (RFC 8446 §6.2); errors that litequic has raised; any other as s2n-quic has it in production, which hides reasons
//! and internal errors.

use s2n_quic::provider::connection_close_formatter::{ConnectionClose, Context, Formatter, Production};
use s2n_quic_core::{application, transport};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PRODUCTION: &Production = &Production;

/// The error with which litequic has the current connection closed. s2n-quic has no call that closes with an error of
/// the transport: the code that raises one makes the current packet one that s2n-quic must close for. s2n-quic requests
/// the CONNECTION_CLOSE within the same call, before it processes another packet. Behind a lock, because s2n-quic wants
/// its providers `Send`.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingClose(Arc<Mutex<Option<transport::Error>>>);

impl PendingClose {
    /// `error` is sent to the client when s2n-quic closes its connection, which must follow.
    pub(super) fn raise(&self, error: transport::Error) {
        *self.lock() = Some(error);
    }

    fn lock(&self) -> MutexGuard<'_, Option<transport::Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hides confidential reasons, but not the alerts: RFC 9001 §4.8 allows `handshake_failure` for all of them.
#[derive(Debug, Clone, Default)]
pub(super) struct CloseFormatter {
    raised: PendingClose,
}

impl CloseFormatter {
    /// A formatter that sends an error in `raised` instead of s2n-quic's error.
    pub(super) fn new(raised: PendingClose) -> Self {
        Self { raised }
    }

    fn transport_error(context: &Context<'_>, error: transport::Error) -> ConnectionClose<'static> {
        if error.try_into_tls_error().is_some() {
            return error.into();
        }
        PRODUCTION.format_transport_error(context, error)
    }
}

impl Formatter for CloseFormatter {
    /// The last of the two that s2n-quic requests.
    fn format_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        let raised = self.raised.lock().take();
        raised.map_or_else(|| Self::transport_error(context, error), ConnectionClose::from)
    }

    fn format_application_error(&self, context: &Context<'_>, error: application::Error) -> ConnectionClose<'_> {
        PRODUCTION.format_application_error(context, error)
    }

    fn format_early_transport_error(&self, context: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        let raised = *self.raised.lock();
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
        let formatter = CloseFormatter::default();
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
        let raised = PendingClose::default();
        let formatter = CloseFormatter::new(raised.clone());
        raised.raise(transport::Error::STREAM_STATE_ERROR);
        let found = transport::Error::PROTOCOL_VIOLATION;
        let codes = || {
            let early = formatter.format_early_transport_error(&context, found).error_code.as_u64();
            (early, formatter.format_transport_error(&context, found).error_code.as_u64())
        };
        assert_eq!(codes(), (0x05, 0x05));
        assert_eq!(codes(), (0x0a, 0x0a));
    }
}
