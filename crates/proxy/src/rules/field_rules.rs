//! Removes, sets and adds fields by a route's rules.

use crate::access::AddressSet;
use crate::message::{forwarded, spelling};
use http::HeaderName;
use litequic_config::{HeaderRules, Template, TemplatePart, Variable};
use litequic_exchange::{Client, FieldName, FieldNameRef, Fields, Head, NameSet, field_syntax::is_field_value};
use std::{fmt::Write, net::IpAddr};

/// Values of a request that templates need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsedVariables {
    pub(super) client: bool,
    pub(super) host: bool,
}

impl UsedVariables {
    /// The values that `template` needs. The request's ID and path are available in any case.
    pub(super) fn in_template(template: &Template) -> Self {
        let has = |variable| {
            template.0.iter().any(|part| matches!(part, TemplatePart::Variable(found) if *found == variable))
        };
        Self { client: has(Variable::Client), host: has(Variable::Host) }
    }

    /// The values that this or `other` needs.
    pub(super) fn union_with(self, other: Self) -> Self {
        Self { client: self.client || other.client, host: self.host || other.host }
    }
}

/// Values of a request for templates.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    /// Address of the client, which a trusted proxy may name; the peer's, unless it is needed.
    pub(crate) client: IpAddr,
    /// Host of the request; `None` unless it is needed.
    pub(super) host: Option<String>,
    id: &'a str,
}

impl<'a> Variables<'a> {
    /// The values of the request with `head` and `id`, as far as `uses` says that they are needed.
    pub(super) fn from_request(
        head: &Head,
        client: &Client,
        trusted: &AddressSet,
        id: &'a str,
        uses: UsedVariables,
    ) -> Self {
        let peer = client.address.ip();
        let client = if uses.client { forwarded::client_behind(peer, &head.fields, trusted) } else { peer };
        let host = uses.host.then(|| head.authority().to_owned());
        Self { client, host, id }
    }

    /// The values of a request of `client` that was rejected before its fields were read.
    pub(super) fn from_rejected(client: &Client, id: &'a str) -> Self {
        Self { client: client.address.ip(), host: None, id }
    }

    /// Fills in `template`; `path` stands for `{path}`.
    pub(super) fn fill_template(&self, template: &Template, path: &str) -> String {
        let mut text = String::new();
        for part in &template.0 {
            // Writing to a String cannot fail.
            let _ = match part {
                TemplatePart::Text(part) => text.write_str(part),
                TemplatePart::Variable(Variable::Client) => write!(text, "{}", self.client),
                TemplatePart::Variable(Variable::Host) => text.write_str(self.host.as_deref().unwrap_or_default()),
                TemplatePart::Variable(Variable::RequestId) => text.write_str(self.id),
                TemplatePart::Variable(Variable::Path) => text.write_str(path),
            };
        }
        text
    }
}

/// Changes of a route to a header.
#[derive(Debug, Default)]
pub(crate) struct FieldRules {
    /// Names whose lines are removed: those of `remove` and of `set`. Those that the table of names does not have are
    /// in `replaced_others`, sorted.
    replaced: NameSet,
    replaced_others: Vec<String>,
    set: Vec<(FieldName, RuleValue)>,
    add: Vec<(FieldName, RuleValue)>,
    /// The lines of `set` and `add`, if no value depends on the request.
    fixed: Option<Fields>,
    /// Names of all fields of the rules, in their plain spelling.
    plain: Vec<String>,
    /// Whether the rules use the plain spelling only.
    are_plain: bool,
}

#[derive(Debug)]
enum RuleValue {
    Fixed(String),
    Filled(Template),
}

impl FieldRules {
    pub(super) fn new(rules: &HeaderRules) -> Self {
        let values = |list: &[(HeaderName, Template)]| {
            list.iter().map(|(name, template)| (name.into(), RuleValue::new(template))).collect()
        };
        let valued = rules.set.iter().chain(&rules.add).map(|(name, _)| name);
        let (set, add): (Vec<_>, Vec<_>) = (values(&rules.set), values(&rules.add));
        let replaced = || rules.remove.iter().chain(rules.set.iter().map(|(name, _)| name)).map(HeaderName::as_str);
        let names = || rules.remove.iter().chain(valued.clone()).map(HeaderName::as_str);
        Self {
            plain: names().map(|name| spelling::plain_name(name).into_owned()).collect(),
            are_plain: names().all(spelling::is_plain_name),
            replaced: NameSet::from_predicate(|name| replaced().any(|replaced| replaced == name)),
            replaced_others: {
                let others = replaced().filter(|name| !FieldNameRef::from_lower_case_token(name).id().is_known());
                let mut others: Vec<String> = others.map(str::to_owned).collect();
                others.sort_unstable();
                others
            },
            fixed: set.iter().chain(&add).map(|(name, value)| value.fixed_line(name)).collect(),
            set,
            add,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty()
    }

    /// The values that the templates need.
    pub(super) fn used_variables(&self) -> UsedVariables {
        let values = self.set.iter().chain(&self.add).map(|(_, value)| match value {
            RuleValue::Fixed(_) => UsedVariables::default(),
            RuleValue::Filled(template) => UsedVariables::in_template(template),
        });
        values.fold(UsedVariables::default(), UsedVariables::union_with)
    }

    /// Whether a rule names a field that an origin may read as `plain`.
    pub(super) fn names_field(&self, plain: &str) -> bool {
        self.plain.iter().any(|name| name == plain)
    }

    /// Whether the rules remove or replace a field of exactly this `name`.
    pub(crate) fn replaces(&self, name: FieldNameRef<'_>) -> bool {
        if name.id().is_known() { self.replaced.contains_id(name.id()) } else { self.replaces_other(name.as_str()) }
    }

    /// Whether the rules remove or replace a field of this `name`, which the table of names does not have.
    fn replaces_other(&self, name: &str) -> bool {
        self.replaced_others.binary_search_by(|replaced| replaced.as_str().cmp(name)).is_ok()
    }

    /// Removes other spellings of the fields that the rules name: an origin that confuses them would not see the
    /// difference.
    pub(super) fn remove_other_spellings(&self, fields: &mut Fields) {
        // Plain names have no other plain spelling.
        if self.plain.is_empty() || self.are_plain && !fields.names.intersects(NameSet::AMBIGUOUS) {
            return;
        }
        // An added field stands beside fields of its own name.
        let added = |name: &str| self.add.iter().any(|(added, _)| added.as_name_ref().as_str() == name);
        spelling::remove_names(fields, |name| !added(name) && self.names_field(&spelling::plain_name(name)));
    }

    /// Removes fields, then sets, then adds.
    pub(crate) fn change_fields(&self, fields: &mut Fields, variables: &Variables<'_>) {
        // One pass: the rules may be many.
        let has_others = !self.replaced_others.is_empty() && fields.names.intersects(NameSet::OTHER);
        if has_others || fields.names.intersects(self.replaced) {
            fields.retain(|line| match line.id().is_known() {
                true => !self.replaced.contains_id(line.id()),
                false => !self.replaces_other(line.name_str()),
            });
        }
        if let Some(fixed) = &self.fixed {
            return fields.append_fields(fixed);
        }
        for (name, value) in self.set.iter().chain(&self.add) {
            value.append_field(name.as_name_ref(), fields, variables);
        }
    }
}

impl RuleValue {
    fn new(template: &Template) -> Self {
        let fixed = match template.0.as_slice() {
            [] => Some(String::new()),
            [TemplatePart::Text(text)] => Some(text.clone()),
            _ => None,
        };
        let fixed = fixed.filter(|text| is_field_value(text.as_bytes()));
        fixed.map_or_else(|| Self::Filled(template.clone()), Self::Fixed)
    }

    /// A line of a field with this value; `None` if the value depends on the request.
    fn fixed_line<'a>(&'a self, name: &'a FieldName) -> Option<(FieldNameRef<'a>, &'a [u8])> {
        match self {
            Self::Fixed(value) => Some((name.as_name_ref(), value.as_bytes())),
            Self::Filled(_) => None,
        }
    }

    /// Adds a field with this value.
    fn append_field(&self, name: FieldNameRef<'_>, fields: &mut Fields, variables: &Variables<'_>) {
        match self {
            Self::Fixed(value) => fields.append(name, value.as_bytes()),
            // A checked configuration and a checked request leave nothing that a value could not hold.
            Self::Filled(template) => {
                let text = variables.fill_template(template, "");
                fields.append(name, if is_field_value(text.as_bytes()) { text.as_bytes() } else { b"" });
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use litequic_config::Network;
    use litequic_exchange::{Authority, LastForwarded, Protocol, TlsIdentity};

    fn client() -> Client {
        Client {
            address: "[2001:db8::1]:4433".parse().unwrap(),
            local: "192.0.2.1:443".parse().unwrap(),
            protocol: Protocol::Http3,
            server_name: None,
            forwarded: LastForwarded::default(),
            identity: TlsIdentity::default(),
            connection: 0,
        }
    }

    pub(in crate::rules) fn test_variables<'a>(authority: &str, id: &'a str) -> Variables<'a> {
        let head = Head::new(http::Method::GET, Authority::new(authority), "/", Fields::new());
        Variables::from_request(
            &head,
            &client(),
            &AddressSet::default(),
            id,
            UsedVariables { client: true, host: true },
        )
    }

    #[test]
    fn what_is_removed_goes_first_and_what_is_added_comes_last() {
        let all = [Variable::Client, Variable::Host, Variable::RequestId];
        let template = |text: &str| Template::parse_variables(text, &all).unwrap();
        let name = HeaderName::from_static;
        let rules = HeaderRules {
            remove: vec![name("server"), name("x-absent"), name("link")],
            set: vec![
                (name("cache-control"), template("no-store")),
                (name("x-real-ip"), template("{client}")),
                (name("x-empty"), template("")),
            ],
            add: vec![
                (name("link"), template("<https://{host}/a>; rel=next")),
                (name("vary"), template("Accept")),
                (name("x-id"), template("{request_id}.{request_id}")),
            ],
        };
        let lines = [
            ("server", "origin"),
            ("server", "twice"),
            ("link", "</b>"),
            ("cache-control", "public"),
            ("cache-control", "immutable"),
            ("vary", "Cookie"),
            ("x-kept", "1"),
        ];
        let mut fields: Fields =
            lines.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect();
        FieldRules::new(&rules).change_fields(&mut fields, &test_variables("a.test:8443", "7f3a"));
        let text = |value| str::from_utf8(value).unwrap();
        let mut lines: Vec<_> =
            fields.iter().map(|line| format!("{}: {}", line.name_str(), text(line.value))).collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "cache-control: no-store",
                "link: <https://a.test:8443/a>; rel=next",
                "vary: Accept",
                "vary: Cookie",
                "x-empty: ",
                "x-id: 7f3a.7f3a",
                "x-kept: 1",
                "x-real-ip: 2001:db8::1",
            ]
        );
    }

    #[test]
    fn a_rule_is_about_every_spelling_of_its_field() {
        let rule = |name| HeaderName::from_static(name);
        let value = || Template(vec![TemplatePart::Text("ours".into())]);
        let removes = |name| HeaderRules { remove: vec![rule(name)], ..HeaderRules::default() };
        let sets = |name| HeaderRules { set: vec![(rule(name), value())], ..HeaderRules::default() };
        let adds = |name| HeaderRules { add: vec![(rule(name), value())], ..HeaderRules::default() };
        for (rules, left) in [
            (removes("x-a-b"), "x-ab=1 x_ab=1"),
            (removes("x_a_b"), "x-ab=1 x_ab=1"),
            (sets("x-a-b"), "x-a-b=ours x-ab=1 x_ab=1"),
            (sets("x_a-b"), "x-ab=1 x_a-b=ours x_ab=1"),
            (adds("x-a-b"), "x-a-b=1 x-a-b=ours x-ab=1 x_ab=1"),
            (adds("x.a.b"), "x-ab=1 x.a.b=1 x.a.b=ours x_ab=1"),
        ] {
            let names = ["x-a-b", "x_a_b", "x-a_b", "x_a-b", "x.a.b", "x~a'b", "x-ab", "x_ab"];
            let mut fields: Fields =
                names.iter().map(|name| (FieldNameRef::from_lower_case_token(name), &b"1"[..])).collect();
            let rules_of = FieldRules::new(&rules);
            rules_of.remove_other_spellings(&mut fields);
            rules_of.change_fields(&mut fields, &test_variables("a.test", "7f3a"));
            let text = |value| str::from_utf8(value).unwrap();
            let mut lines: Vec<_> =
                fields.iter().map(|line| format!("{}={}", line.name_str(), text(line.value))).collect();
            lines.sort();
            assert_eq!(lines.join(" "), left, "{rules:?}");
        }
    }

    #[test]
    fn only_the_values_that_rules_use_are_read_of_a_request() {
        let fields = Fields::from_iter([(FieldNameRef::from_lower_case_token("x-forwarded-for"), &b"192.0.2.9"[..])]);
        let head = Head::new(http::Method::GET, Authority::new("a.test"), "/", fields);
        let client = client();
        let trusted = AddressSet::new(&[Network::from_address(client.address.ip(), 128)]);
        for (text, uses, ip, host) in [
            ("no-store", UsedVariables::default(), client.address.ip(), None),
            ("{request_id}", UsedVariables::default(), client.address.ip(), None),
            ("{client}", UsedVariables { client: true, host: false }, "192.0.2.9".parse().unwrap(), None),
            ("https://{host}", UsedVariables { client: false, host: true }, client.address.ip(), Some("a.test")),
        ] {
            let template =
                Template::parse_variables(text, &[Variable::Client, Variable::Host, Variable::RequestId]).unwrap();
            let set = vec![(HeaderName::from_static("x-a"), template)];
            let fields = FieldRules::new(&HeaderRules { set, ..HeaderRules::default() });
            assert_eq!(fields.used_variables(), uses, "{text}");
            let variables = Variables::from_request(&head, &client, &trusted, "7f3a", uses);
            assert_eq!((variables.client, variables.host.as_deref()), (ip, host), "{text}");
        }
    }

    #[test]
    fn no_rule_sets_what_the_client_may_not_say() {
        for name in ["forwarded", "x-forwarded-for", "x_forwarded_proto", "client-cert", "client.cert", "x-request-id"]
        {
            let name = HeaderName::from_static(name);
            assert!(
                forwarded::is_identity_field(name.as_str()) && litequic_config::request_field_fault(&name).is_some(),
                "{name}"
            );
        }
        // litequic removes this field of a client and sets none, so that a rule may set it.
        let name = HeaderName::from_static("x-real-ip");
        assert!(forwarded::is_identity_field(name.as_str()) && litequic_config::request_field_fault(&name).is_none());
    }
}
