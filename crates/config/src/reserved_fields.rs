//! Defines `origin.reserved_fields`: request fields that only a proxy in `trusted_proxies` may send, because origins
//! trust them.

use crate::reading::{
    table::{KeyReader, list_key, reader_of},
    value_kinds::{ValueError, ValueKind, text_kind},
};
use std::{borrow::Cow, collections::BTreeSet, fmt, ops::RangeInclusive, str::FromStr, sync::Arc};

/// Number of items: longer lists are typing errors.
const ITEM_COUNT_RANGE: RangeInclusive<usize> = 0..=64;

/// Fields for the client's address, as other proxies and content delivery networks send them.
const ADDRESS_FIELDS: &[&str] = &[
    // Akamai, Cloudflare (Enterprise)
    "true-client-ip x-true-client-ip",
    // Cloudflare
    "cf-connecting-ip cf-connecting-ipv6 cf-pseudo-ipv4",
    // CloudFront, Fastly, Fly.io, Imperva, Netlify, DigitalOcean
    "cloudfront-viewer-address fastly-client-ip fly-client-ip incap-client-ip x-nf-client-connection-ip",
    "do-connecting-ip",
    // Azure, App Engine, Envoy
    "x-azure-clientip x-azure-socketip x-appengine-user-ip x-envoy-external-address",
    // WebLogic and other application servers
    "proxy-client-ip wl-proxy-client-ip",
    // Libraries that look for the client's address: Rails, Django, Node, PHP frameworks
    "client-ip forwarded-for forwarded-for-ip remote-addr x-client-ip x-cluster-client-ip x-forwarded",
    "x-original-forwarded-for x-originating-ip x-proxyuser-ip x-real-client-ip x-remote-addr x-remote-ip",
    "x-source-ip x-vercel-forwarded-for",
];

/// Fields for the client's certificate, as proxies that verify it send them.
const CERTIFICATE_FIELDS: &[&str] = &[
    // nginx and HAProxy, as their guides name the fields
    "x-client-cert x-client-certificate x-client-dn x-client-verify x-ssl-cert x-ssl-client-cert",
    "x-ssl-client-cn x-ssl-client-dn x-ssl-client-fingerprint x-ssl-client-i-dn x-ssl-client-issuer-dn",
    "x-ssl-client-s-dn x-ssl-client-serial x-ssl-client-sha1 x-ssl-client-subject-dn x-ssl-client-verify",
    "x-ssl-issuer x-ssl-subject",
    // ingress-nginx
    "ssl-client-cert ssl-client-issuer-dn ssl-client-subject-dn ssl-client-verify",
    // Azure App Service, AWS Application Load Balancer
    "x-arr-clientcert x-amzn-mtls-clientcert x-amzn-mtls-clientcert-issuer x-amzn-mtls-clientcert-leaf",
    "x-amzn-mtls-clientcert-serial-number x-amzn-mtls-clientcert-subject x-amzn-mtls-clientcert-validity",
];

/// Fields for the URL that the client requested, if it differs from the URL of the request.
const URL_FIELDS: &[&str] = &[
    // IIS URL Rewrite, Symfony, Laminas: another path than that by which litequic selects the route
    "x-original-url x-rewrite-url x-original-uri x-original-path x-original-method x-envoy-original-path",
    "x-replaced-path x-request-uri",
    // Another host
    "x-host x-original-host x-envoy-original-host x-http-host-override",
    // Another scheme
    "front-end-https x-front-end-https x-scheme x-original-scheme x-original-proto x-url-scheme x-https",
    "cf-visitor cloudfront-forwarded-proto",
    // Files that the origin has the proxy send (Rack::Sendfile)
    "x-accel-mapping x-sendfile-type",
];

/// Fields that override the method. Clients behind firewalls that permit only GET and POST need them.
const METHOD_FIELDS: &[&str] = &["x-http-method-override x-http-method x-method-override x-method"];

/// Returns the names of `rows`, which blanks separate.
fn field_names(rows: &[&'static str]) -> impl Iterator<Item = &'static str> {
    rows.iter().flat_map(|row| row.split(' '))
}

/// An item of `origin.reserved_fields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservedField {
    /// `client`: addresses and certificates.
    Client,
    /// `url`: path, host and scheme.
    Url,
    /// `method`: overrides of the method, on each route. Without this item, such fields are only removed on routes with
    /// a condition on the method.
    Method,
    /// The name of a field, in lower case.
    Name(String),
    /// The name of a field, in lower case, that is excluded from the other items.
    Except(String),
}

impl fmt::Display for ReservedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Url => f.write_str("url"),
            Self::Method => f.write_str("method"),
            Self::Name(name) => f.write_str(name),
            Self::Except(name) => write!(f, "!{name}"),
        }
    }
}

impl FromStr for ReservedField {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = |text: &str| {
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
                // A field is reserved in all spellings, so the name must be plain.
                return Err("not a field's name of letters, digits and -");
            }
            let name = text.to_ascii_lowercase();
            // Over HTTP/2 and HTTP/3 the host is in `:authority`.
            if name == "host" {
                Err("cannot be listed: HTTP/2 and HTTP/3 requests have no Host field")
            } else {
                Ok(name)
            }
        };
        Ok(match text {
            "client" => Self::Client,
            "url" => Self::Url,
            "method" => Self::Method,
            _ => match text.strip_prefix('!') {
                Some(text) => Self::Except(name(text)?),
                None => Self::Name(name(text)?),
            },
        })
    }
}

/// Fields that only a proxy in `trusted_proxies` may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedFields(Arc<ReservedFieldSet>);

#[derive(Debug, PartialEq, Eq)]
struct ReservedFieldSet {
    items: Vec<ReservedField>,
    /// Names that are reserved on each route.
    always: FieldNames,
    /// Names that are reserved on routes with a condition on the method.
    methods: FieldNames,
    /// Lengths of the names in `always`, `methods` and [`CHECKED_FIELDS`], a bit for each, by [`length_slot`]: one
    /// lookup excludes most names of a request.
    lengths: [u64; LENGTH_SLOTS],
}

type FieldNames = BTreeSet<Cow<'static, str>>;

const LENGTH_SLOTS: usize = 64;

/// Fields for which [`ReservedFields::may_contain`] is always true: connection-specific and framing fields, for which
/// every request is searched as well, so that one pass finds all.
const CHECKED_FIELDS: &[&str] =
    &["connection content-length keep-alive proxy proxy-connection te trailer transfer-encoding upgrade"];

/// Returns the slot of a name in [`ReservedFieldSet::lengths`] and the bit of its length. The slot follows from the
/// first and the third byte, with factors by which no field that browsers send shares slot and bit with a reserved or
/// checked one.
#[inline]
fn length_slot(name: &str) -> (usize, usize) {
    let slot = match name.as_bytes() {
        [first, _, third, ..] => first.wrapping_mul(5).wrapping_add(third.wrapping_mul(11)),
        short => short.first().copied().unwrap_or_default(),
    };
    (usize::from(slot) % LENGTH_SLOTS, name.len() % 64)
}

impl ReservedFields {
    /// Creates the set of fields for `items`.
    pub fn new(items: Vec<ReservedField>) -> Self {
        let (mut always, mut methods) =
            (FieldNames::new(), FieldNames::from_iter(field_names(METHOD_FIELDS).map(Cow::from)));
        let mut add = |group: &[&'static str]| always.extend(field_names(group).map(Cow::from));
        for item in &items {
            match item {
                ReservedField::Client => [ADDRESS_FIELDS, CERTIFICATE_FIELDS].into_iter().for_each(&mut add),
                ReservedField::Url => add(URL_FIELDS),
                ReservedField::Method => add(METHOD_FIELDS),
                ReservedField::Name(_) | ReservedField::Except(_) => {}
            }
        }
        for item in &items {
            match item {
                ReservedField::Name(name) => drop(always.insert(name.clone().into())),
                ReservedField::Except(name) => {
                    always.remove(name.as_str());
                    methods.remove(name.as_str());
                }
                _ => {}
            }
        }
        let mut lengths = [0; LENGTH_SLOTS];
        let checked: FieldNames = field_names(CHECKED_FIELDS).map(Cow::from).collect();
        for name in always.iter().chain(&methods).chain(&checked) {
            let (slot, length) = length_slot(name);
            if let Some(lengths) = lengths.get_mut(slot) {
                *lengths |= 1_u64 << length;
            }
        }
        Self(Arc::new(ReservedFieldSet { items, always, methods, lengths }))
    }

    /// Returns false for nearly all names that are neither reserved, connection-specific nor framing, and true for all
    /// others. Names are in lower case.
    #[inline]
    pub fn may_contain(&self, name: &str) -> bool {
        let (slot, length) = length_slot(name);
        self.0.lengths.get(slot).is_some_and(|lengths| lengths >> length & 1 != 0)
    }

    /// Whether the list has `!name`: the origin gets this field, in lower case, from clients.
    pub fn excludes_name(&self, name: &str) -> bool {
        self.0.items.iter().any(|item| matches!(item, ReservedField::Except(except) if except == name))
    }

    /// Whether the field `plain`, in lower case, is reserved; `methods_matter` if the route has a method condition.
    pub fn reserves_field(&self, plain: &str, methods_matter: bool) -> bool {
        self.may_contain(plain) && (self.0.always.contains(plain) || methods_matter && self.0.methods.contains(plain))
    }
}

impl Default for ReservedFields {
    fn default() -> Self {
        Self::new(vec![ReservedField::Client, ReservedField::Url])
    }
}

/// Reads `origin.reserved_fields`.
pub(super) fn reserved_fields_key() -> impl KeyReader<ReservedFields> {
    reader_of(
        list_key(reserved_field_kind(), ITEM_COUNT_RANGE),
        |section, key, list, default: ReservedFields, about| {
            ReservedFields::new(list.read_key_value(section, key, default.0.items.clone(), about))
        },
        |list, fields| list.format_value(&fields.0.items),
    )
}

fn reserved_field_kind() -> ValueKind<ReservedField> {
    let expected = "\"client\", \"url\", \"method\", the name of a field, or one behind \"!\" that is not reserved";
    text_kind(expected, |text: String| text.parse().map_err(ValueError::from), ToString::to_string)
        .with_pattern("!?[0-9A-Za-z-]+")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(items: &[&str]) -> ReservedFields {
        ReservedFields::new(items.iter().map(|item| item.parse().unwrap()).collect())
    }

    #[test]
    fn a_list_stands_for_its_groups_and_names_without_its_exceptions() {
        let table: [(&[&str], &str, bool, bool); 12] = [
            (&["client", "url"], "cf-connecting-ip", true, true),
            (&["client", "url"], "x-ssl-client-verify", true, true),
            (&["client", "url"], "x-original-url", true, true),
            (&["client", "url"], "x-http-method-override", false, true),
            (&["client", "url"], "user-agent", false, false),
            (&["client", "!cf-connecting-ip"], "cf-connecting-ip", false, false),
            (&["!CF-Connecting-IP", "client"], "cf-connecting-ip", false, false),
            (&["client"], "x-original-url", false, false),
            (&["method"], "x-http-method-override", true, true),
            (&["!x-http-method-override"], "x-http-method-override", false, false),
            (&["X-User"], "x-user", true, true),
            (&[], "cf-connecting-ip", false, false),
        ];
        for (items, name, elsewhere, where_methods_matter) in table {
            let fields = of(items);
            assert_eq!(fields.reserves_field(name, false), elsewhere, "{items:?} {name}");
            assert_eq!(fields.reserves_field(name, true), where_methods_matter, "{items:?} {name}");
        }
    }

    #[test]
    fn the_names_of_the_groups_are_plain_distinct_and_found() {
        let groups = [ADDRESS_FIELDS, CERTIFICATE_FIELDS, URL_FIELDS, METHOD_FIELDS];
        let all: Vec<&str> = groups.into_iter().flat_map(field_names).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "a name twice");
        let fields = of(&["client", "url", "method"]);
        assert!(field_names(CHECKED_FIELDS).all(|name| fields.may_contain(name) && !fields.reserves_field(name, true)));
        for name in all {
            assert!(name.parse::<ReservedField>().is_ok_and(|item| item == ReservedField::Name(name.into())), "{name}");
            assert!(fields.reserves_field(name, false), "{name}");
        }
    }

    /// The names of fields that browsers and their libraries send pass the quick check.
    #[test]
    fn the_length_check_excludes_the_fields_that_browsers_send() {
        let fields = ReservedFields::default();
        let names = "accept accept-encoding accept-language access-control-request-headers access-control-request-method \
                     authorization cache-control content-type cookie dnt if-modified-since if-none-match \
                     origin pragma priority range referer sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest \
                     sec-fetch-mode sec-fetch-site sec-fetch-user traceparent tracestate upgrade-insecure-requests \
                     user-agent";
        let looked_up: Vec<&str> = names.split(' ').filter(|name| fields.may_contain(name)).collect();
        assert!(looked_up.is_empty(), "{looked_up:?}");
    }

    #[test]
    fn an_item_is_a_group_or_a_plain_name() {
        for (text, shown) in [
            ("client", Some("client")),
            ("method", Some("method")),
            ("X-User", Some("x-user")),
            ("!X-User", Some("!x-user")),
            ("x_user", None),
            ("!!x-user", None),
            ("", None),
            ("!", None),
            ("host", None),
            ("a b", None),
        ] {
            assert_eq!(text.parse::<ReservedField>().ok().map(|item| item.to_string()).as_deref(), shown, "{text}");
        }
    }
}
