//! The static table (RFC 9204 Appendix A), for decoding by index and for encoding by name.

use litequic_exchange::NameId;

const LEN: usize = 99;

/// Names and values by index.
const TABLE: [(&str, &str); LEN] = [
    (":authority", ""), // 0
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""), // 5
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""), // 10
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"), // 15
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"), // 20
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"), // 25
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"), // 30
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"), // 35
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"), // 40
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"), // 45
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"), // 50
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"), // 55
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"), // 60
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"), // 65
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"), // 70
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"), // 75
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"), // 80
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"), // 85
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""), // 90
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""), // 95
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// The names' numbers by index.
static IDS: [NameId; LEN] = ids();

/// The name and the value at `index`.
pub(super) fn field(index: u64) -> Option<(NameId, &'static str)> {
    let index = usize::try_from(index).ok()?;
    Some((*IDS.get(index)?, TABLE.get(index)?.1))
}

/// The place of a name in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// With the same value.
    Field(u64),
    /// With another value.
    Name(u64),
}

/// Looks a field up.
pub(super) fn find(name: NameId, value: &[u8]) -> Option<Found> {
    let first = *FIRST.get(name.index()).filter(|first| **first != NONE)?;
    let mut index = first;
    while let Some((_, known)) = TABLE.get(usize::from(index)) {
        if known.as_bytes() == value {
            return Some(Found::Field(u64::from(index)));
        }
        index = *NEXT.get(usize::from(index))?;
    }
    Some(Found::Name(u64::from(first)))
}

/// No entry: beyond the table's end.
const NONE: u8 = u8::MAX;

/// Each name's first index, by its number.
static FIRST: [u8; NameId::COUNT] = first();

/// From an index to the next one with the same name.
static NEXT: [u8; LEN] = next();

#[expect(clippy::indexing_slicing, reason = "runs in the compiler alone")]
const fn ids() -> [NameId; LEN] {
    let mut ids = [NameId::OTHER; LEN];
    let mut index = 0;
    while index < LEN {
        ids[index] = NameId::known(TABLE[index].0);
        assert!(ids[index].is_known(), "a name without a number");
        index += 1;
    }
    ids
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
const fn first() -> [u8; NameId::COUNT] {
    let (mut first, ids) = ([NONE; NameId::COUNT], ids());
    let mut index = LEN;
    while index > 0 {
        index -= 1;
        first[ids[index].index()] = index as u8;
    }
    first
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
const fn next() -> [u8; LEN] {
    let (mut next, ids) = ([NONE; LEN], ids());
    let mut index = 0;
    while index < LEN {
        let mut other = index + 1;
        while other < LEN && ids[index].index() != ids[other].index() {
            other += 1;
        }
        if other < LEN {
            next[index] = other as u8;
        }
        index += 1;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stand_where_rfc_9204_puts_them() {
        let table = [
            (0, ":authority", ""),
            (1, ":path", "/"),
            (5, "cookie", ""),
            (15, ":method", "CONNECT"),
            (17, ":method", "GET"),
            (23, ":scheme", "https"),
            (25, ":status", "200"),
            (31, "accept-encoding", "gzip, deflate, br"),
            (42, "content-encoding", "br"),
            (46, "content-type", "application/json"),
            (53, "content-type", "text/plain"),
            (56, "strict-transport-security", "max-age=31536000"),
            (63, ":status", "100"),
            (71, ":status", "500"),
            (72, "accept-language", ""),
            (85, "content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
            (98, "x-frame-options", "sameorigin"),
        ];
        for (index, name, value) in table {
            assert_eq!(field(index).map(|(id, value)| (id.text(), value)), Some((name, value)), "{index}");
        }
        assert_eq!(field(99), None);
        assert_eq!(field(u64::MAX), None);
    }

    #[test]
    fn a_field_is_found_as_a_search_from_the_first_entry_finds_it() {
        let names =
            TABLE.iter().map(|(name, _)| *name).chain(["", "x", "accepp", "x-request-id", ":protocol", "link "]);
        let values = TABLE.iter().map(|(_, value)| *value).chain(["else"]);
        for name in names {
            for value in values.clone() {
                let field = TABLE.iter().position(|entry| *entry == (name, value));
                let first = TABLE.iter().position(|entry| entry.0 == name);
                let expected = field.map(|at| Found::Field(at as u64)).or(first.map(|at| Found::Name(at as u64)));
                assert_eq!(find(NameId::known(name), value.as_bytes()), expected, "{name}: {value}");
            }
        }
    }
}
