//! What a name, a value and a method may hold: every byte, by each protocol.

use super::Request;
use crate::support::prelude::*;

/// Whether requests pass by HTTP/1.1, HTTP/2 and HTTP/3.
struct Clients {
    litequic: Litequic,
    http2: Http2,
    stream: u32,
    http3: Raw,
}

impl Clients {
    async fn passes(&mut self, request: &Request<'_>) -> [bool; 3] {
        let one = request.by_http1(&self.litequic).await;
        let two = request.by_http2(&mut self.http2, self.stream).await;
        self.stream += 2;
        if two.is_none() {
            // h2 may have closed the connection.
            (self.http2, self.stream) = (Http2::connect(&self.litequic, &[]).await, 1);
        }
        let three = request.by_http3(&self.http3).await;
        [one, two, three].map(|answer| match answer {
            Some((200, _)) => true,
            None | Some((400, _)) => false,
            other => panic!("{other:?}"),
        })
    }

    async fn close(self) {
        self.litequic.stop().await;
    }
}

async fn clients(origin: &Always) -> Clients {
    let litequic = Litequic::start(origin.address, |_| {}).await;
    let (http2, http3) = (Http2::connect(&litequic, &[]).await, Raw::to(&litequic).await);
    Clients { http2, stream: 1, http3, litequic }
}

/// RFC 9110 §5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !br#"(),/:;<=>?@[\]{}""#.contains(&byte)
}

#[tokio::test]
async fn the_protocols_agree_on_every_byte_of_a_name() {
    let origin = Always::new(Always::EMPTY_200).await;
    let mut clients = clients(&origin).await;
    for byte in 0..=u8::MAX {
        let name = [b'x', byte, b'y'];
        let request = Request { fields: vec![(&name, b"z")], ..Request::get("/", &[]) };
        let expected = match byte {
            // The first colon ends a name in HTTP/1.1; capitals are HTTP/1.1's alone.
            b':' | b'A'..=b'Z' => [true, false, false],
            byte => [is_token_byte(byte); 3],
        };
        assert_eq!(clients.passes(&request).await, expected, "{byte:#x}");
    }
    clients.close().await;
}

#[tokio::test]
async fn all_protocols_accept_the_same_bytes_in_field_values() {
    let origin = Always::new(Always::EMPTY_200).await;
    let mut clients = clients(&origin).await;
    for byte in 0..=u8::MAX {
        let value = [b'a', byte, b'b'];
        let request = Request { fields: vec![(b"x", &value)], ..Request::get("/", &[]) };
        let expected = byte == b'\t' || byte >= b' ' && byte != 0x7f;
        assert_eq!(clients.passes(&request).await, [expected; 3], "{byte:#x}");
    }
    for value in [&b" a"[..], b"a ", b"\ta", b"a\t", b" ", b"\t"] {
        let request = Request { fields: vec![(b"x", value)], ..Request::get("/", &[]) };
        // HTTP/1.1 cuts them off (RFC 9112 §5).
        assert_eq!(clients.passes(&request).await, [true, false, false], "{value:?}");
    }
    let request = Request { fields: vec![(b"x", b"")], ..Request::get("/", &[]) };
    assert_eq!(clients.passes(&request).await, [true; 3]);
    clients.close().await;
}

#[tokio::test]
async fn the_protocols_agree_on_every_byte_of_a_method() {
    let origin = Always::new(Always::EMPTY_200).await;
    let mut clients = clients(&origin).await;
    for byte in 0..=u8::MAX {
        let method = [b'G', byte, b'T'];
        let request = Request { method: &method, ..Request::get("/", &[]) };
        assert_eq!(clients.passes(&request).await, [is_token_byte(byte); 3], "{byte:#x}");
    }
    clients.close().await;
}
