//! Creates and reads the cookies of sticky sessions, each of which names a server.
//!
//! The value is a MAC of the origin's name and the server's address: only litequic can generate it, it does not reveal
//! the address, and it names the same server at any place in the list. All clients of a server have the same value, so
//! that a stolen one is worthless. It is computed once for each server, and compared for a request.

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    hmac::{self, HMAC_SHA256},
};
use litequic_exchange::{Fields, name, write_hex};

/// Length of the MAC in bytes: half of HMAC-SHA256's, the minimum of RFC 2104 §5.
const MAC_BYTES: usize = 16;
/// Length of the MAC in hexadecimal digits.
const VALUE_DIGITS: usize = 2 * MAC_BYTES;
/// Most cookies of the name that are read: a browser sends one for each path and domain that has one.
const MAX_COOKIES_READ: usize = 4;

/// Key of the MACs in cookies of sticky sessions.
#[derive(Clone)]
pub struct CookieKey(hmac::Key);

impl CookieKey {
    /// A key by which cookies are valid in every process with the same `secret`.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, secret))
    }

    /// A key by which cookies are valid in this process only.
    pub fn with_random_secret() -> Self {
        Self::new(&rand::random::<[u8; 32]>())
    }

    fn cookie_value(&self, origin: &str, server: &str) -> [u8; VALUE_DIGITS] {
        let mut context = hmac::Context::with_key(&self.0);
        // The length comes first, so that no other pair has the same input.
        for part in [(origin.len() as u64).to_be_bytes().as_slice(), origin.as_bytes(), server.as_bytes()] {
            context.update(part);
        }
        let mut value = [0; VALUE_DIGITS];
        write_hex(context.sign().as_ref(), &mut value);
        value
    }
}

litequic_base::partial_debug!(CookieKey);

/// Result of reading the cookie of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestCookie {
    /// The request has no cookie of the name.
    Nothing,
    /// The cookie names the server with this number.
    Server(usize),
    /// The cookie names no server of the origin: it is forged, or of a server or key that is gone.
    Unknown,
}

/// Cookies of the servers of one origin.
#[derive(Debug)]
pub(crate) struct StickyCookies {
    name: String,
    /// Values, by the servers' numbers.
    values: Vec<[u8; VALUE_DIGITS]>,
    /// Values of `Set-Cookie`, by the servers' numbers.
    fields: Vec<String>,
}

impl StickyCookies {
    /// Creates the cookies called `name` for the `servers` of `origin`, which are given by their addresses.
    pub(crate) fn new(name: &str, key: &CookieKey, origin: &str, servers: impl Iterator<Item = String>) -> Self {
        let values: Vec<_> = servers.map(|server| key.cookie_value(origin, &server)).collect();
        let field = |value: &[u8; VALUE_DIGITS]| {
            // Without `Max-Age` the cookie ends with the browser's session. `Path` has it sent for all routes of the
            // host.
            format!("{name}={}; Path=/; Secure; HttpOnly; SameSite=Lax", String::from_utf8_lossy(value))
        };
        Self { name: name.to_owned(), fields: values.iter().map(field).collect(), values }
    }

    /// Reads the cookie of a request with `fields`.
    pub(crate) fn read_cookie(&self, fields: &Fields) -> RequestCookie {
        let lines = fields.all_values(name::COOKIE);
        let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
        let values = pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(self.name.as_bytes())?.strip_prefix(b"="));
        let mut shown = RequestCookie::Nothing;
        for value in values.take(MAX_COOKIES_READ) {
            match self.values.iter().position(|known| verify_slices_are_equal(known, value).is_ok()) {
                Some(server) => return RequestCookie::Server(server),
                None => shown = RequestCookie::Unknown,
            }
        }
        shown
    }

    /// The value of `Set-Cookie` for a client of `server`.
    pub(crate) fn set_cookie_value(&self, server: usize) -> Option<&str> {
        self.fields.get(server).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVERS: [&str; 3] = ["http://10.0.0.5:8080", "http://10.0.0.6:8080", "unix:/run/a.sock"];

    fn cookies_of(secret: u8, origin: &str, servers: &[&str]) -> StickyCookies {
        let servers = servers.iter().map(ToString::to_string);
        StickyCookies::new("origin_server", &CookieKey::new(&[secret; 32]), origin, servers)
    }

    fn cookies() -> StickyCookies {
        cookies_of(7, "origin", &SERVERS)
    }

    /// The cookie as a client sends it back.
    fn pair(cookies: &StickyCookies, server: usize) -> String {
        cookies.set_cookie_value(server).unwrap().split(';').next().unwrap().to_owned()
    }

    fn shown(cookies: &StickyCookies, lines: &[&str]) -> RequestCookie {
        let fields = lines.iter().map(|line| (name::COOKIE, line.as_bytes()));
        cookies.read_cookie(&fields.collect())
    }

    #[test]
    fn a_cookie_names_its_server_and_tells_nothing_of_it() {
        let cookies = cookies();
        for (number, server) in SERVERS.iter().enumerate() {
            let field = cookies.set_cookie_value(number).unwrap();
            let (pair, attributes) = field.split_once("; ").unwrap();
            assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
            assert_eq!(shown(&cookies, &[pair]), RequestCookie::Server(number));
            let (name, value) = pair.split_once('=').unwrap();
            assert_eq!(name, "origin_server");
            assert!(value.len() == VALUE_DIGITS && value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{value}");
            assert!(!server.split(['/', ':', '.']).any(|part| part.len() > 2 && value.contains(part)), "{value}");
        }
        assert_eq!(cookies.set_cookie_value(3), None);
    }

    #[test]
    fn a_request_shows_a_server_or_what_is_none() {
        let cookies = cookies();
        let (first, second) = (pair(&cookies, 0), pair(&cookies, 1));
        let cut = first.get(..first.len() - 1).unwrap();
        let other = first.replace("origin_server", "xorigin_server");
        for (what, lines, expected) in [
            ("no field", vec![], RequestCookie::Nothing),
            ("others alone", vec!["a=b; c=d"], RequestCookie::Nothing),
            ("one of another name", vec![&*other], RequestCookie::Nothing),
            ("its name without a value", vec!["origin_server"], RequestCookie::Nothing),
            ("between others", vec![&*format!("a=b; {first};c=d")], RequestCookie::Server(0)),
            ("on a line of its own, as HTTP/2 may have it", vec!["a=b", &*second, "c=d"], RequestCookie::Server(1)),
            ("empty", vec!["origin_server="], RequestCookie::Unknown),
            ("cut", vec![cut], RequestCookie::Unknown),
            ("longer", vec![&*format!("{first}0")], RequestCookie::Unknown),
            (
                "in capitals",
                vec![&*first.to_uppercase().replace("ORIGIN_SERVER", "origin_server")],
                RequestCookie::Unknown,
            ),
            ("another path's first", vec![&*format!("origin_server=x; {first}")], RequestCookie::Server(0)),
            ("two", vec![&*format!("{second}; {first}")], RequestCookie::Server(1)),
            (
                "too many",
                vec![&*format!("{}{first}", "origin_server=x; ".repeat(MAX_COOKIES_READ))],
                RequestCookie::Unknown,
            ),
        ] {
            assert_eq!(shown(&cookies, &lines), expected, "{what}");
        }
    }

    #[test]
    fn a_cookie_is_valid_for_key_origin_and_server_in_any_order() {
        let given = pair(&cookies(), 0);
        for (what, cookies, expected) in [
            ("another process with the key", cookies(), RequestCookie::Server(0)),
            ("another order", cookies_of(7, "origin", &[SERVERS[1], SERVERS[0]]), RequestCookie::Server(1)),
            ("its server is gone", cookies_of(7, "origin", &SERVERS[1..]), RequestCookie::Unknown),
            ("another key", cookies_of(8, "origin", &SERVERS), RequestCookie::Unknown),
            ("another origin", cookies_of(7, "other", &SERVERS), RequestCookie::Unknown),
        ] {
            assert_eq!(shown(&cookies, &[&given]), expected, "{what}");
        }
        assert_eq!(format!("{:?}", CookieKey::new(&[7; 32])), "CookieKey { .. }");
    }

    proptest! {
        #[test]
        fn no_value_names_a_server_but_those_that_were_given(value in "[ -:<-~]{0,40}") {
            let cookies = cookies();
            let known = (0..SERVERS.len()).any(|server| pair(&cookies, server) == format!("origin_server={value}"));
            let found = shown(&cookies, &[&format!("origin_server={value}")]);
            prop_assert!(known || found == RequestCookie::Unknown);
        }

        #[test]
        fn whatever_a_client_sends_is_read(lines in prop::collection::vec(prop::collection::vec(0x20..=0xff_u8, 0..60), 0..5)) {
            let lines = lines.iter().filter(|line| litequic_exchange::field_syntax::is_field_value(line));
            let fields = lines.map(|line| (name::COOKIE, line.as_slice()));
            cookies().read_cookie(&fields.collect());
        }
    }
}
