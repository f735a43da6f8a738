//! Numbers the field names that a rule, a check or a static table uses.

use crate::http1::is_name_ignoring_case;

/// Declares the names that have a number, and a constant for each name that the code uses.
macro_rules! known_names {
    ($($text:literal $($constant:ident)?),+ $(,)?) => {
        /// Names that have a number.
        pub(super) const KNOWN_NAMES: [&str; 123] = [$($text),+];

        /// Constants for the names that the code uses.
        pub mod name {
            use super::FieldNameRef;

            $($(
                #[doc = concat!("`", $text, "`")]
                pub const $constant: FieldNameRef<'static> = FieldNameRef::from_static_name($text);
            )?)+
        }
    };
}

// The pseudo-header fields of HTTP/2 and HTTP/3 come first.
known_names! {
    ":authority" AUTHORITY,
    ":method" METHOD,
    ":path" PATH,
    ":protocol" PROTOCOL,
    ":scheme" SCHEME,
    ":status" STATUS,
    // QPACK's static table (RFC 9204 Appendix A)
    "accept",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-request-headers",
    "access-control-request-method",
    "age",
    "alt-svc" ALT_SVC,
    "authorization" AUTHORIZATION,
    "cache-control" CACHE_CONTROL,
    "content-disposition",
    "content-encoding" CONTENT_ENCODING,
    "content-length" CONTENT_LENGTH,
    "content-security-policy",
    "content-type" CONTENT_TYPE,
    "cookie" COOKIE,
    "date" DATE,
    "early-data",
    "etag",
    "expect-ct",
    "forwarded" FORWARDED,
    "if-modified-since" IF_MODIFIED_SINCE,
    "if-none-match" IF_NONE_MATCH,
    "if-range" IF_RANGE,
    "last-modified",
    "link",
    "location" LOCATION,
    "origin",
    "purpose",
    "range" RANGE,
    "referer",
    "server",
    "set-cookie" SET_COOKIE,
    "strict-transport-security",
    "timing-allow-origin",
    "upgrade-insecure-requests",
    "user-agent",
    "vary",
    "x-content-type-options",
    "x-forwarded-for" X_FORWARDED_FOR,
    "x-frame-options",
    "x-xss-protection",
    // HPACK's static table alone (RFC 7541 Appendix A)
    "accept-charset",
    "from",
    "proxy-authenticate",
    "refresh",
    // The connection and the body's framing (RFC 9110 §7.6.1, RFC 9112 §6)
    "connection" CONNECTION,
    "host" HOST,
    "keep-alive" KEEP_ALIVE,
    "proxy-connection" PROXY_CONNECTION,
    "te" TE,
    "trailer" TRAILER,
    "transfer-encoding" TRANSFER_ENCODING,
    "upgrade" UPGRADE,
    // Names that litequic sets, removes or reads
    "allow" ALLOW,
    "client-cert" CLIENT_CERT,
    "client-cert-chain" CLIENT_CERT_CHAIN,
    "content-language" CONTENT_LANGUAGE,
    "expect" EXPECT,
    "grpc-message" GRPC_MESSAGE,
    "grpc-status" GRPC_STATUS,
    "grpc-timeout" GRPC_TIMEOUT,
    "if-match" IF_MATCH,
    "if-unmodified-since" IF_UNMODIFIED_SINCE,
    "max-forwards" MAX_FORWARDS,
    "proxy" PROXY,
    "proxy-authorization" PROXY_AUTHORIZATION,
    "proxy-status" PROXY_STATUS,
    "remote-user" REMOTE_USER,
    "retry-after" RETRY_AFTER,
    "sec-websocket-accept" SEC_WEBSOCKET_ACCEPT,
    "sec-websocket-key" SEC_WEBSOCKET_KEY,
    "traceparent" TRACEPARENT,
    "www-authenticate" WWW_AUTHENTICATE,
    "x-forwarded-host" X_FORWARDED_HOST,
    "x-forwarded-method" X_FORWARDED_METHOD,
    "x-forwarded-port" X_FORWARDED_PORT,
    "x-forwarded-proto" X_FORWARDED_PROTO,
    "x-forwarded-uri" X_FORWARDED_URI,
    "x-real-ip" X_REAL_IP,
    "x-request-id" X_REQUEST_ID,
    // Names that most browsers and many origins send
    "content-location",
    "content-range",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "dnt",
    "expires",
    "nel",
    "permissions-policy",
    "pragma",
    "priority" PRIORITY,
    "referrer-policy",
    "report-to",
    "save-data",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-gpc",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "server-timing",
    "tracestate" TRACESTATE,
    "via",
    "warning",
    "x-api-key",
    "x-powered-by",
    "x-requested-with",
}

/// Number of pseudo-header fields at the beginning of [`KNOWN_NAMES`].
const PSEUDO_COUNT: u8 = 6;

/// The number of a name in the table, or [`NameId::OTHER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NameId(u8);

impl NameId {
    /// The number of every name that is not in the table.
    pub const OTHER: Self = Self(127);
    /// Length of the longest name in the table, in bytes.
    pub const MAX_LEN: usize = longest_name_len();
    /// Number of names in the table.
    pub const COUNT: usize = KNOWN_NAMES.len();

    /// Returns the number of `name` in lower case. No name with a capital is in the table.
    #[inline]
    pub fn from_lower_case(name: &[u8]) -> Self {
        find_name_id(name, |known| known == name)
    }

    /// Returns the number of `name`, a token in any case.
    #[inline]
    pub fn from_any_case(name: &[u8]) -> Self {
        find_name_id(name, |known| is_name_ignoring_case(name, known))
    }

    /// Returns the number of `name`, in a constant expression.
    pub const fn from_const_name(name: &str) -> Self {
        let mut id = 0;
        while id < KNOWN_NAMES.len() {
            #[expect(clippy::indexing_slicing, reason = "within the table")]
            if const_bytes_eq(KNOWN_NAMES[id].as_bytes(), name.as_bytes()) {
                #[expect(clippy::cast_possible_truncation, reason = "the table is shorter")]
                return Self(id as u8);
            }
            id += 1;
        }
        Self::OTHER
    }

    /// Returns the name; empty for [`Self::OTHER`].
    pub fn as_str(self) -> &'static str {
        KNOWN_NAMES.get(self.table_index()).copied().unwrap_or_default()
    }

    /// Returns the index in the table.
    pub const fn table_index(self) -> usize {
        self.0 as usize
    }

    /// Whether the name is in the table.
    pub const fn is_known(self) -> bool {
        self.0 != Self::OTHER.0
    }

    /// Whether this is a pseudo-header field (RFC 9114 §4.3).
    pub const fn is_pseudo(self) -> bool {
        self.0 < PSEUDO_COUNT
    }

    /// Whether a value is secret, so that no peer may put it into its table (RFC 7541 §7.1.3, RFC 9204 §7.1.3).
    pub const fn is_sensitive(self) -> bool {
        SENSITIVE_NAMES.contains_id(self)
    }
}

const SENSITIVE_NAMES: NameSet =
    NameSet::from_names(&[name::AUTHORIZATION, name::COOKIE, name::PROXY_AUTHORIZATION, name::SET_COOKIE]);

/// A borrowed field name in lower case: the number, and the text for names without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldNameRef<'a> {
    pub(super) id: NameId,
    pub(super) text: &'a str,
}

impl<'a> FieldNameRef<'a> {
    /// Creates a name from `text`, a token in lower case.
    pub fn from_lower_case_token(text: &'a str) -> Self {
        Self { id: NameId::from_lower_case(text.as_bytes()), text }
    }

    const fn from_static_name(text: &'static str) -> FieldNameRef<'static> {
        FieldNameRef { id: NameId::from_const_name(text), text }
    }

    /// Returns the number of the name.
    pub const fn id(self) -> NameId {
        self.id
    }

    /// Returns the text of the name.
    pub const fn as_str(self) -> &'a str {
        self.text
    }
}

/// An owned field name, of the configuration. Its number is looked up once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldName {
    id: NameId,
    text: Box<str>,
}

impl FieldName {
    /// Returns the name, for a lookup.
    pub fn as_name_ref(&self) -> FieldNameRef<'_> {
        FieldNameRef { id: self.id, text: &self.text }
    }
}

impl From<FieldNameRef<'_>> for FieldName {
    fn from(FieldNameRef { id, text }: FieldNameRef<'_>) -> Self {
        Self { id, text: text.into() }
    }
}

impl From<&http::HeaderName> for FieldName {
    fn from(name: &http::HeaderName) -> Self {
        FieldNameRef::from_lower_case_token(name.as_str()).into()
    }
}

/// A set of the table's names, with one bit for all other names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameSet(u128);

impl NameSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// The set of all names that are not in the table.
    pub const OTHER: Self = Self(1 << NameId::OTHER.0);
    /// Names with characters other than letters, digits and `-`. None is in the table.
    pub const AMBIGUOUS: Self = Self(1 << 126);

    /// Creates the set of `names`, all of the table.
    pub const fn from_names(names: &[FieldNameRef<'static>]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < names.len() {
            #[expect(clippy::indexing_slicing, reason = "within the slice")]
            let id = names[at].id;
            assert!(id.is_known(), "no name of the table");
            set |= 1 << id.0;
            at += 1;
        }
        Self(set)
    }

    /// Creates the set of the table's names for which `is_in` is true.
    pub fn from_predicate(is_in: impl Fn(&str) -> bool) -> Self {
        let bits = KNOWN_NAMES.iter().enumerate().filter(|(_, name)| is_in(name)).map(|(id, _)| 1 << id);
        Self(bits.fold(0, |set: u128, bit: u128| set | bit))
    }

    /// Whether `id` is in the set.
    pub const fn contains_id(self, id: NameId) -> bool {
        self.0 >> id.0 & 1 != 0
    }

    /// Whether the sets have a name in common.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the names of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn insert_id(&mut self, id: NameId, is_ambiguous: bool) {
        self.0 |= 1 << id.0;
        if is_ambiguous {
            self.0 |= Self::AMBIGUOUS.0;
        }
    }

    pub(super) const fn remove_id(&mut self, id: NameId) {
        self.0 &= !(1 << id.0);
    }
}

const _: () = assert!(KNOWN_NAMES.len() <= 126);

/// Number of slots of the hash table: a power of two, and several times the names, so that most other names find an
/// empty slot.
const HASH_SLOTS: usize = 512;
const EMPTY_SLOT: u8 = NameId::OTHER.0;

/// Numbers of the table's names, by [`hash_slot`] with open addressing.
static NAME_TABLE: [u8; HASH_SLOTS] = build_name_table();

#[inline]
fn find_name_id(name: &[u8], is_same: impl Fn(&[u8]) -> bool) -> NameId {
    let mut slot = hash_slot(name);
    loop {
        let id = NAME_TABLE.get(slot).copied().unwrap_or(EMPTY_SLOT);
        match KNOWN_NAMES.get(usize::from(id)) {
            Some(known) if known.len() == name.len() && is_same(known.as_bytes()) => {
                return NameId(id);
            }
            Some(_) => slot = (slot + 1) % HASH_SLOTS,
            None => return NameId::OTHER,
        }
    }
}

/// Hashes the length and four letters without their case, which suffices for the table's names.
#[inline]
const fn hash_slot(name: &[u8]) -> usize {
    let length = name.len();
    let (Some(first), Some(last)) = (name.first(), name.last()) else {
        return 0;
    };
    let Some((before, tail)) = name.split_at_checked(length / 2) else {
        return 0;
    };
    let (Some(middle), Some(end)) = (tail.first(), before.last()) else {
        return *first as usize;
    };
    (length * 7
        + fold_letter(*first) * 31
        + fold_letter(*middle) * 5
        + fold_letter(*end) * 101
        + fold_letter(*last) * 17)
        % HASH_SLOTS
}

const fn fold_letter(byte: u8) -> usize {
    byte as usize | 0x20
}

#[expect(clippy::indexing_slicing, reason = "runs in the compiler alone")]
const fn longest_name_len() -> usize {
    let (mut id, mut longest) = (0, 0);
    while id < KNOWN_NAMES.len() {
        if KNOWN_NAMES[id].len() > longest {
            longest = KNOWN_NAMES[id].len();
        }
        id += 1;
    }
    longest
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
const fn build_name_table() -> [u8; HASH_SLOTS] {
    let mut table = [EMPTY_SLOT; HASH_SLOTS];
    let mut id = 0;
    while id < KNOWN_NAMES.len() {
        let mut slot = hash_slot(KNOWN_NAMES[id].as_bytes());
        while table[slot] != EMPTY_SLOT {
            slot = (slot + 1) % HASH_SLOTS;
        }
        table[slot] = id as u8;
        id += 1;
    }
    table
}

#[expect(clippy::indexing_slicing, reason = "runs in the compiler alone")]
const fn const_bytes_eq(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_syntax::is_lower_case_token;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_name_is_once_in_the_table_and_found_in_any_case() {
        assert_eq!(BTreeSet::from(KNOWN_NAMES).len(), KNOWN_NAMES.len());
        for (index, text) in KNOWN_NAMES.iter().enumerate() {
            let id = NameId::from_lower_case(text.as_bytes());
            assert_eq!((id.table_index(), id.as_str(), NameId::from_const_name(text)), (index, *text, id));
            let capitals = text.to_ascii_uppercase();
            assert_eq!(
                (NameId::from_lower_case(capitals.as_bytes()), NameId::from_any_case(capitals.as_bytes())),
                (NameId::OTHER, id)
            );
            let token = text.strip_prefix(':').unwrap_or(text);
            assert!(is_lower_case_token(token.as_bytes()));
            assert!(token.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric()), "{text} is plain");
            assert_eq!(id.is_pseudo(), text.starts_with(':'));
        }
        let secret = ["authorization", "cookie", "proxy-authorization", "set-cookie"];
        assert!(KNOWN_NAMES.iter().all(|text| NameId::from_const_name(text).is_sensitive() == secret.contains(text)));
        assert!(!NameId::OTHER.is_sensitive());
    }

    #[test]
    fn a_set_has_its_names_alone() {
        let set = NameSet::from_names(&[name::HOST, name::TE]);
        let filtered = NameSet::from_predicate(|name| matches!(name, "host" | "te"));
        assert_eq!(set, filtered);
        for text in KNOWN_NAMES {
            assert_eq!(set.contains_id(NameId::from_const_name(text)), matches!(text, "host" | "te"), "{text}");
        }
        assert!(!set.intersects(NameSet::OTHER) && !set.contains_id(NameId::OTHER));
        assert!(
            set.intersects(NameSet::from_names(&[name::TE, name::DATE]))
                && !set.intersects(NameSet::from_names(&[name::DATE]))
        );
    }

    proptest! {
        #[test]
        fn a_name_is_found_as_a_search_finds_it(text in "[a-zA-Z-]{0,12}|(accept|cookie|x-forwarded-|te|sec-)[a-z-]{0,8}") {
            let expected = KNOWN_NAMES.iter().position(|name| *name == text).map_or(NameId::OTHER.table_index(), |index| index);
            prop_assert_eq!(NameId::from_lower_case(text.as_bytes()).table_index(), expected);
            let lower = text.to_ascii_lowercase();
            prop_assert_eq!(NameId::from_any_case(text.as_bytes()), NameId::from_lower_case(lower.as_bytes()));
        }
    }
}
