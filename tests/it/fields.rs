//! Names and values of fields: what passes by HTTP/1.1, HTTP/2 and HTTP/3 alike, and in how many spellings an origin
//! reads one name.

mod alike;
mod reserved;
mod spellings;
mod trailers;

use crate::support::prelude::*;

/// A protocol that clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    Http3,
}

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];

/// What a client got: a status and the body, which is empty where there was a status alone; `None` for a reset.
pub(crate) type Answer = Option<(u16, String)>;

/// A request with those fields behind its own, and perhaps a body of three bytes with trailers.
pub(crate) struct Request<'a> {
    method: &'a [u8],
    path: &'a str,
    fields: Vec<(&'a [u8], &'a [u8])>,
    trailers: Option<Vec<(&'a [u8], &'a [u8])>>,
}

impl<'a> Request<'a> {
    pub(crate) fn get(path: &'a str, fields: &[(&'a str, &'a str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        Self { method: b"GET", path, fields, trailers: None }
    }

    /// A POST.
    pub(crate) fn with_trailers(path: &'a str, fields: &[(&'a str, &'a str)], trailers: &[(&'a str, &'a str)]) -> Self {
        let trailers = trailers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        Self { method: b"POST", trailers: Some(trailers), ..Self::get(path, fields) }
    }

    /// Sends it on a connection of its own.
    pub(crate) async fn ask(&self, litequic: &Litequic, protocol: Protocol) -> Answer {
        match protocol {
            Protocol::Http1 => self.by_http1(litequic).await,
            Protocol::Http2 => self.by_http2(&mut Http2::connect(litequic, &[]).await, 1).await,
            Protocol::Http3 => self.by_http3(&Raw::to(litequic).await).await,
        }
    }

    /// The same of one with trailers, which `origin` answers: what the origin gets of the body.
    async fn body_at(&self, origin: &Script, litequic: &Litequic, protocol: Protocol) -> String {
        let answered = async {
            let mut peer = origin.accept_request().await;
            let body = peer.until("\r\n\r\n").await;
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
            body
        };
        let (answer, body) = tokio::join!(self.ask(litequic, protocol), answered);
        assert_eq!(answer.map(|(status, _)| status), Some(200), "{protocol:?}");
        body
    }

    /// `Connection: close` is among its fields.
    async fn by_http1(&self, litequic: &Litequic) -> Answer {
        let line = |(name, value): &(&[u8], &[u8])| [name, &b": "[..], value, b"\r\n"].concat();
        let path = self.path;
        let mut all =
            [self.method, format!(" {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n").as_bytes()].concat();
        all.extend(self.fields.iter().flat_map(line));
        match &self.trailers {
            None => all.extend(b"\r\n"),
            Some(trailers) => {
                all.extend(b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n");
                all.extend(trailers.iter().flat_map(line));
                all.extend(b"\r\n");
            }
        }
        let mut tls = Tls::http1(litequic).await;
        tls.say(all).await;
        let (answer, _) = tls.rest().await;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.get(9..12)?.parse().unwrap(), body.to_owned()))
    }

    fn pseudo(&self) -> [(&'a [u8], &'a [u8]); 4] {
        let path = self.path.as_bytes();
        [(b":method", self.method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]
    }

    /// On the stream of that number.
    async fn by_http2(&self, client: &mut Http2, stream: u32) -> Answer {
        let literal = |(name, value): &(&[u8], &[u8])| {
            let string = |text: &[u8]| [&[u8::try_from(text.len()).unwrap()], text].concat();
            [vec![0], string(name), string(value)].concat()
        };
        let head: Vec<u8> = self.pseudo().iter().chain(&self.fields).flat_map(literal).collect();
        let end = if self.trailers.is_none() { http2::END_STREAM } else { 0 };
        client.say(http2::HEADERS, http2::END_HEADERS | end, stream, &head).await;
        if let Some(trailers) = &self.trailers {
            client.say(http2::DATA, 0, stream, b"abc").await;
            let section: Vec<u8> = trailers.iter().flat_map(literal).collect();
            client.say(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, stream, &section).await;
        }
        let (mut status, mut body) = (None, Vec::new());
        loop {
            let frame = client.find(&[http2::HEADERS, http2::DATA, http2::RST_STREAM, http2::GOAWAY]).await?;
            if frame.kind == http2::GOAWAY || frame.kind == http2::RST_STREAM && frame.code() != 0 {
                return None;
            }
            match frame.kind {
                http2::HEADERS if status.is_none() => status = Some(http2::status(&frame)),
                http2::DATA => body.extend(frame.payload),
                _ => {}
            }
            if frame.flags & http2::END_STREAM != 0 {
                return Some((status?, String::from_utf8(body).unwrap()));
            }
        }
    }

    async fn by_http3(&self, client: &Raw) -> Answer {
        let mut all = raw::headers(&[&self.pseudo()[..], &self.fields].concat());
        if let Some(trailers) = &self.trailers {
            all.extend([raw::data("abc"), raw::headers(trailers)].concat());
        }
        match client.ask(&all).await {
            Outcome::Response(response) => Some((response.fields.status(), String::from_utf8(response.body).unwrap())),
            Outcome::Reset(_) => None,
            Outcome::Closed(code) => panic!("closed with {code:#x}"),
        }
    }
}
