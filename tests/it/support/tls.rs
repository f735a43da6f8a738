//! A TLS client over TCP that sends arbitrary bytes.

use super::prelude::*;
use litequic_tls::{ServerTrust, client_config};
use rustls::{
    ClientConfig, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A connection to litequic's first TCP address.
pub(crate) struct Tls {
    pub(crate) stream: TlsStream<TcpStream>,
    seen: Vec<u8>,
}

/// A configuration that trusts `cert_pem` alone and offers `protocols`.
pub(crate) fn config(cert_pem: &str, protocols: &[&str]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(client::roots(cert_pem))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

/// A server's configuration with `chain`, whose first certificate has the key `key_pem`.
pub(crate) fn server_config(chain: Vec<CertificateDer<'static>>, key_pem: &str) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
    config.with_no_client_auth().with_single_cert(chain, key).unwrap()
}

/// A configuration of a client that trusts any certificate: for a process whose certificate the test does not have.
pub(crate) fn credulous(protocols: &[&str]) -> ClientConfig {
    let mut config = client_config(&ServerTrust::Insecure).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

impl Tls {
    /// Connects as `localhost` with HTTP/1.1.
    pub(crate) async fn http1(litequic: &Litequic) -> Self {
        Self::connect(litequic.tcp[0], "localhost", config(&litequic.cert_pem, &["http/1.1"])).await.unwrap()
    }

    /// Connects to `address` with `name` as SNI.
    pub(crate) async fn connect(address: SocketAddr, name: &str, config: ClientConfig) -> std::io::Result<Self> {
        let stream = within("a TCP connection", TcpStream::connect(address)).await?;
        Self::over(stream, name, config).await
    }

    /// A handshake over `stream`, for `name`.
    pub(crate) async fn over(stream: TcpStream, name: &str, config: ClientConfig) -> std::io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = within("a TLS handshake", connector.connect(name, stream)).await?;
        Ok(Self { stream, seen: Vec::new() })
    }

    /// The stream, and what was read of it and not looked at.
    pub(crate) fn into_parts(self) -> (TlsStream<TcpStream>, Vec<u8>) {
        (self.stream, self.seen)
    }

    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Writes as long as the connection takes it; false once it is closed.
    pub(crate) async fn try_say(&mut self, bytes: &[u8]) -> bool {
        within("a write", self.stream.write_all(bytes)).await.is_ok()
    }

    /// Reads on until what was read ends with `end`, and returns it all.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        while !self.seen.ends_with(end.as_bytes()) {
            let read = within(&format!("{end:?} at the client"), self.stream.read_buf(&mut self.seen)).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&self.seen));
        }
        String::from_utf8(std::mem::take(&mut self.seen)).unwrap()
    }

    /// A response's head; what came with it of the body is read next.
    pub(crate) async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.seen.windows(4).position(|four| four == b"\r\n\r\n") {
                let body = self.seen.split_off(end + 4);
                return String::from_utf8(std::mem::replace(&mut self.seen, body)).unwrap().to_ascii_lowercase();
            }
            let read = within("a response's head", self.stream.read_buf(&mut self.seen)).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&self.seen));
        }
    }

    /// Exactly `length` bytes.
    pub(crate) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.seen.len() < length {
            let read = within("bytes at the client", self.stream.read_buf(&mut self.seen)).await.unwrap();
            assert!(read > 0, "closed after {} bytes", self.seen.len());
        }
        let rest = self.seen.split_off(length);
        std::mem::replace(&mut self.seen, rest)
    }

    /// Everything until the connection's end, and whether that was an orderly one (close_notify, RFC 8446 §6.1).
    pub(crate) async fn rest(&mut self) -> (String, bool) {
        let orderly = loop {
            match within("the connection's end", self.stream.read_buf(&mut self.seen)).await {
                Ok(0) => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        (String::from_utf8_lossy(&std::mem::take(&mut self.seen)).into_owned(), orderly)
    }
}
