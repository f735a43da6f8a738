//! Stands in for s2n-quic's packet number spaces.

use super::*;

/// Data that s2n-quic would hold for a session, without packets.
#[derive(Default)]
pub(super) struct Spaces {
    pub(super) initial: Space,
    pub(super) handshake: Space,
    pub(super) application: Space,
    pub(super) one_rtt: Option<(OneRttKey, OneRttHeaderKey)>,
    pub(super) client_parameters: Vec<u8>,
    pub(super) server_name: Option<String>,
    pub(super) protocol: Vec<u8>,
    pub(super) group: Option<NamedGroup>,
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) identity: Option<TlsIdentity>,
}

#[derive(Default)]
pub(super) struct Space {
    pub(super) keys: bool,
    pub(super) incoming: Vec<u8>,
    pub(super) outgoing: Vec<u8>,
}

impl Space {
    fn receive(&mut self) -> Option<Bytes> {
        (!self.incoming.is_empty()).then(|| Bytes::from(std::mem::take(&mut self.incoming)))
    }
}

impl Context<QuicTlsSession> for Spaces {
    fn on_client_application_params(
        &mut self,
        _: ApplicationParameters<'_>,
        _: &mut Vec<u8>,
    ) -> Result<(), transport::Error> {
        panic!("rustls cannot wait for the client's parameters")
    }

    fn on_handshake_keys(&mut self, _: HandshakeKey, _: HandshakeHeaderKey) -> Result<(), transport::Error> {
        assert!(!std::mem::replace(&mut self.handshake.keys, true), "handshake keys twice");
        Ok(())
    }

    fn on_zero_rtt_keys(
        &mut self,
        _: s2n_quic_crypto::zero_rtt::ZeroRttKey,
        _: s2n_quic_crypto::zero_rtt::ZeroRttHeaderKey,
        _: ApplicationParameters<'_>,
    ) -> Result<(), transport::Error> {
        panic!("there is no early data")
    }

    fn on_one_rtt_keys(
        &mut self,
        packet: OneRttKey,
        header: OneRttHeaderKey,
        parameters: ApplicationParameters<'_>,
    ) -> Result<(), transport::Error> {
        assert!(self.one_rtt.replace((packet, header)).is_none(), "1-RTT keys twice");
        assert!(!self.protocol.is_empty(), "the protocol is known before the keys");
        self.application.keys = true;
        self.client_parameters = parameters.transport_parameters.to_vec();
        Ok(())
    }

    fn on_server_name(&mut self, name: ServerName) -> Result<(), transport::Error> {
        assert!(self.server_name.replace(name.to_string()).is_none(), "a name twice");
        Ok(())
    }

    fn on_application_protocol(&mut self, protocol: Bytes) -> Result<(), transport::Error> {
        assert!(self.protocol.is_empty(), "a protocol twice");
        self.protocol = protocol.to_vec();
        Ok(())
    }

    fn on_key_exchange_group(&mut self, group: NamedGroup) -> Result<(), transport::Error> {
        self.group = Some(group);
        Ok(())
    }

    fn on_handshake_complete(&mut self) -> Result<(), transport::Error> {
        self.completed += 1;
        Ok(())
    }

    fn on_tls_context(&mut self, context: Box<dyn Any + Send>) {
        assert!(self.identity.replace(*context.downcast().unwrap()).is_none(), "an identity twice");
    }

    fn on_tls_exporter_ready(&mut self, session: &impl TlsSession) -> Result<(), transport::Error> {
        assert!(!matches!(session.cipher_suite(), CipherSuite::Unknown));
        assert_eq!(
            session.peer_cert_chain_der().is_ok(),
            self.identity.as_ref().is_some_and(|who| who.certificate.is_some())
        );
        Ok(())
    }

    fn on_tls_handshake_failed(
        &mut self,
        _: &impl TlsSession,
        _: Box<dyn error::Error + Send + Sync + 'static>,
    ) -> Result<(), transport::Error> {
        self.failed += 1;
        Ok(())
    }

    fn receive_initial(&mut self, _: Option<usize>) -> Option<Bytes> {
        self.initial.receive()
    }

    fn receive_handshake(&mut self, _: Option<usize>) -> Option<Bytes> {
        self.handshake.receive()
    }

    fn receive_application(&mut self, _: Option<usize>) -> Option<Bytes> {
        panic!("s2n-quic has none for a server")
    }

    fn can_send_initial(&self) -> bool {
        true
    }

    fn send_initial(&mut self, message: Bytes) {
        self.initial.outgoing.extend_from_slice(&message);
    }

    fn can_send_handshake(&self) -> bool {
        self.handshake.keys
    }

    fn send_handshake(&mut self, message: Bytes) {
        self.handshake.outgoing.extend_from_slice(&message);
    }

    fn can_send_application(&self) -> bool {
        self.application.keys
    }

    fn send_application(&mut self, message: Bytes) {
        self.application.outgoing.extend_from_slice(&message);
    }

    fn waker(&self) -> &Waker {
        Waker::noop()
    }
}

/// Encoded transport parameters.
pub(super) struct Encoded(pub(super) &'static [u8]);

impl EncoderValue for Encoded {
    fn encode<E: s2n_codec::Encoder>(&self, encoder: &mut E) {
        encoder.write_slice(self.0);
    }
}
