//! Fields by which proxies tell an origin about its client: none reaches the origin from a client itself, in any
//! spelling, by any protocol, in the header or in trailers.

use super::{PROTOCOLS, Protocol, Request};
use crate::support::{origin::Head, prelude::*};
use litequic_config::{AmbiguousFields, ReservedFields};

/// One of each kind, and one that nothing is about.
const NAMES: [&str; 7] = [
    "cf-connecting-ip",
    "x-ssl-client-verify",
    "x-original-url",
    "front-end-https",
    "x-http-method-override",
    "x-user",
    "early-data",
];

/// The spellings of `name` that some origin reads as it.
fn spellings(name: &str) -> [String; 3] {
    [name.to_owned(), name.replace('-', "_"), name.replacen('-', ".", 1)]
}

fn reserve(config: &mut Config, items: &[&str]) {
    let origin = config.origins.get_mut(Config::ORIGIN_NAME).unwrap();
    origin.reserved_fields = ReservedFields::new(items.iter().map(|item| item.parse().unwrap()).collect());
    origin.ambiguous_fields = AmbiguousFields::Pass;
}

/// A GET with each of [`NAMES`] in each spelling: the head that the origin gets.
async fn get(litequic: &Litequic, origin: &Script, protocol: Protocol, path: &str) -> Head {
    let names: Vec<String> = NAMES.iter().flat_map(|name| spellings(name)).collect();
    let fields: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
    let request = Request::get(path, &fields);
    let answered = async {
        let mut peer = origin.accept().await;
        let head = peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        head
    };
    let (answer, head) = tokio::join!(request.ask(litequic, protocol), answered);
    assert_eq!(answer, Some((200, String::new())), "{protocol:?}");
    head
}

/// Which of [`NAMES`] the origin got, of which each spelling has the same fate.
fn passed(head: &Head) -> Vec<&'static str> {
    let has = |name: &str| !head.all(name).is_empty();
    NAMES
        .into_iter()
        .filter(|name| {
            let all = spellings(name).map(|name| has(&name));
            assert!(all == [all[0]; 3], "{name}: {all:?}");
            all[0]
        })
        .collect()
}

#[tokio::test]
async fn no_client_says_itself_who_it_is_or_what_it_asked_for() {
    let table: [(&[&str], &[&str]); 4] = [
        (&["client", "url"], &["x-http-method-override", "x-user", "early-data"]),
        (&["client", "url", "method", "x-user"], &["early-data"]),
        (
            &["client", "!cf-connecting-ip"],
            &[
                "cf-connecting-ip",
                "x-original-url",
                "front-end-https",
                "x-http-method-override",
                "x-user",
                "early-data",
            ],
        ),
        (&[], &NAMES),
    ];
    for (items, expected) in table {
        let (origin, litequic) = Script::behind_litequic(|config| reserve(config, items)).await;
        for protocol in PROTOCOLS {
            let head = get(&litequic, &origin, protocol, "/").await;
            assert_eq!(passed(&head), expected, "{items:?} {protocol:?}");
        }
        let removed = u64::try_from((NAMES.len() - expected.len()) * 3 * PROTOCOLS.len()).unwrap();
        assert_eq!(litequic.sum(|worker| worker.proxy.reserved_fields.get()), removed);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_trusted_proxy_names_its_client_in_exact_spelling_alone() {
    let (origin, litequic) = Script::behind_litequic(|config| {
        reserve(config, &["client", "url"]);
        config.trusted_proxies = vec![Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 8 }];
    })
    .await;
    for protocol in PROTOCOLS {
        let head = get(&litequic, &origin, protocol, "/").await;
        for name in ["cf-connecting-ip", "x-original-url"] {
            let spelled = spellings(name).map(|name| !head.all(&name).is_empty());
            assert_eq!(spelled, [true, false, false], "{name} {protocol:?}");
        }
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_method_is_not_overridden_where_it_selects_the_route() {
    let (origin, litequic) = Script::behind_litequic(|config| {
        reserve(config, &["client", "url"]);
        let route = |path: &str, methods: &[Method]| {
            let mut route = RouteConfig { path_prefix: path.into(), ..RouteConfig::catch_all(Config::ORIGIN_NAME) };
            route.conditions.methods = methods.to_vec();
            route
        };
        config.routes = vec![route("/admin", &[Method::GET]), route("/admin", &[]), route("/api", &[])];
    })
    .await;
    for protocol in PROTOCOLS {
        for (path, passes) in [("/admin/a", false), ("/api", true)] {
            let head = get(&litequic, &origin, protocol, path).await;
            assert_eq!(passed(&head).contains(&"x-http-method-override"), passes, "{path} {protocol:?}");
        }
    }
    litequic.stop().await;
}

#[tokio::test]
async fn trailers_have_none_of_these_fields_whoever_sends_them() {
    for trusted in [false, true] {
        let (origin, litequic) = Script::behind_litequic(|config| {
            reserve(config, &["client", "url"]);
            if trusted {
                config.trusted_proxies = vec![Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 8 }];
            }
        })
        .await;
        let trailers = ["x-sum", "cf-connecting-ip", "cf_connecting_ip", "x-original-url"];
        let names = trailers.join(", ");
        for protocol in PROTOCOLS {
            let fields = [("te", "trailers"), ("trailer", &*names)];
            // TE belongs to an HTTP/1.1 connection, as in Connection.
            let fields = if protocol == Protocol::Http1 { &fields[1..] } else { &fields };
            let request = Request::with_trailers("/", fields, &trailers.map(|name| (name, "1")));
            let body = request.body_at(&origin, &litequic, protocol).await;
            let (_, section) = body.split_once("0\r\n").unwrap();
            assert_eq!(section, "x-sum: 1\r\n\r\n", "{protocol:?}");
        }
        litequic.stop().await;
    }
}
