//! Maintenance: the real process, switched by `litequic ctl`.

use crate::{
    drain::ask,
    reload::{Setup, saying},
    support::{
        http2::{DATA, END_HEADERS, END_STREAM, HEADERS},
        prelude::*,
        process::litequic,
    },
};

const ROUTES: &str = r#"
[[routes]]
name = "shop"
path_prefix = "/shop"
origin = "origin"
error_pages = { 503 = "closed.html" }

[[routes]]
path = "/health"
respond = { body = "up" }

[[routes]]
host = "localhost"
path_prefix = "/local"
origin = "origin"
"#;

/// A configuration with `listen.tcp`, and the page of `shop`.
fn setup() -> Setup {
    let setup = Setup::new();
    fs::write(setup.path("closed.html"), "<p>closed").unwrap();
    setup
}

/// The tables of [`ROUTES`] as one value, as `Setup` puts it before other keys.
fn routes() -> String {
    let table: toml::Table = ROUTES.parse().unwrap();
    format!("routes = {}", table["routes"])
}

async fn ctl(setup: &Setup, words: &[&str]) -> Ended {
    let admin = setup.admin.to_string();
    let mut arguments = vec!["ctl".to_owned(), "maintenance".into(), "--admin".into(), admin];
    arguments.extend(words.iter().map(ToString::to_string));
    spawn_blocking(move || litequic(arguments)).await.unwrap()
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).await.status.as_u16()
}

/// Of `/`, `/shop`, `/local` and `/health`.
async fn statuses(client: &Client) -> [u16; 4] {
    let mut all = [0; 4];
    for (status_code, path) in all.iter_mut().zip(["/", "/shop", "/local", "/health"]) {
        *status_code = status(client, path).await;
    }
    all
}

#[tokio::test]
async fn maintenance_switches_routes_by_name_host_or_all() {
    let (setup, origin) = (setup(), saying("the origin").await);
    let process = setup.start_with(origin.address, &routes()).await;
    let client = setup.client().await;
    assert_eq!(statuses(&client).await, [200, 200, 200, 200]);

    let said = ctl(&setup, &["on", "--route", "shop", "--retry-after", "60"]).await.answer();
    assert_eq!(ctl(&setup, &[]).await.success(), said, "without a word it is shown, and nothing changes");
    assert_eq!(said, "shop answers 503, Retry-After: 60\n  shop\n");
    assert_eq!(statuses(&client).await, [200, 503, 200, 200]);
    let answer = client.get("/shop/x").await;
    assert_eq!((answer.status.as_u16(), answer.text(), answer.field("retry-after")), (503, "<p>closed", Some("60")));
    assert!(answer.field("proxy-status").unwrap().contains("error=destination_unavailable"));
    process.await_stderr("maintenance switched on");

    let said = ctl(&setup, &["on"]).await.answer();
    assert!(said.starts_with("all answers 503, Retry-After: 300\n"), "{said}");
    assert_eq!(statuses(&client).await, [503, 503, 503, 200], "what litequic answers itself goes on");
    let answer = client.get("/").await;
    assert_eq!(answer.field("retry-after"), Some("300"));
    assert!(answer.text().starts_with("503 Service Unavailable: in maintenance\nrequest "), "{}", answer.text());
    assert_eq!(client.get("/shop").await.field("retry-after"), Some("60"), "by name comes before all");

    let (_, text) = ask(setup.admin, "GET /status").await;
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let maintenance = told["maintenance"].as_array().unwrap();
    assert_eq!((maintenance.len(), &maintenance[0]["target"]), (2, &serde_json::Value::Null));
    assert_eq!((&maintenance[1]["target"], &maintenance[1]["retry_after"]), (&"shop".into(), &60.into()));
    // Two of routes, and that of `[origin]`.
    assert_eq!(setup.metric("litequic_maintenance_routes").await, 3);
    assert!(setup.metric("litequic_maintenance_responses_total").await > 0);

    assert_eq!(ctl(&setup, &["off", "--route", "shop"]).await.code, Some(0));
    assert_eq!(statuses(&client).await, [503, 503, 503, 200], "all still are");
    assert_eq!(ctl(&setup, &["off"]).await.answer(), "no route is in maintenance\n");
    assert_eq!(statuses(&client).await, [200, 200, 200, 200]);
    assert_eq!(setup.metric("litequic_maintenance_routes").await, 0);
    process.await_stderr("maintenance switched off");

    let said = ctl(&setup, &["on", "--route", "LOCALHOST"]).await.answer();
    assert_eq!(said, "LOCALHOST answers 503, Retry-After: 300\n  localhost/local\n");
    assert_eq!(statuses(&client).await, [200, 200, 503, 200]);
    assert_eq!(ctl(&setup, &["on", "--route", "*=/health"]).await.code, Some(0));
    assert_eq!(statuses(&client).await, [200, 200, 503, 503], "a route of its own by its name");
}

#[tokio::test]
async fn what_cannot_be_switched_is_said_and_changes_nothing() {
    let (setup, origin) = (setup(), saying("the origin").await);
    let _process = setup.start_with(origin.address, &routes()).await;
    let ended = ctl(&setup, &["on", "--route", "shpo"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("no route has the name or the host \"shpo\"; routes are"), "{}", ended.stderr);
    let ended = ctl(&setup, &["off", "--route", "shop"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("\"shop\" is not in maintenance under that name"), "{}", ended.stderr);
    assert_eq!(ctl(&setup, &[]).await.success(), "no route is in maintenance\n");
    for words in [&["sometimes"][..], &["on", "--retry-after", "0"], &["on", "--retry-after", "700000"]] {
        assert_eq!(ctl(&setup, words).await.code, Some(64), "{words:?}");
    }
    let admin = setup.admin.to_string();
    let other = spawn_blocking(move || litequic(["ctl", "status", "on", "--admin", &admin])).await.unwrap();
    assert_eq!(other.code, Some(64), "{}", other.stderr);
    assert_eq!(ask(setup.admin, "POST /maintenance").await.0, 400);
    assert_eq!(ask(setup.admin, "GET /maintenance?state=on").await.0, 405);
    assert_eq!(statuses(&setup.client().await).await, [200, 200, 200, 200]);
}

#[tokio::test]
async fn maintenance_outlives_a_reload_and_holds_for_routes_that_come_with_it() {
    let (setup, origin) = (setup(), saying("the origin").await);
    let process = setup.start_with(origin.address, &routes()).await;
    let client = setup.client().await;
    assert_eq!(ctl(&setup, &["on", "--route", "shop"]).await.code, Some(0));

    let (status_code, told) = setup.change(origin.address, &format!("{}\nlimits.max_headers = 98", routes())).await;
    assert_eq!(status_code, 200, "{told}");
    assert_eq!(statuses(&client).await, [200, 503, 200, 200]);

    // Without the route there is nothing in maintenance; it is again when the route is there again.
    setup.change(origin.address, "limits.max_headers = 97").await;
    process.await_stderr("the configuration no longer has such a route");
    assert_eq!(status(&client, "/shop").await, 200);
    assert_eq!(setup.metric("litequic_maintenance_routes").await, 0);
    setup.change(origin.address, &routes()).await;
    assert_eq!(statuses(&client).await, [200, 503, 200, 200]);
    assert_eq!(ctl(&setup, &["off"]).await.code, Some(0));
    assert_eq!(statuses(&client).await, [200, 200, 200, 200]);
}

#[tokio::test]
async fn an_upload_during_maintenance_does_not_hang_by_any_protocol() {
    let (setup, origin) = (setup(), saying("the origin").await);
    let tcp = free_tcp_port();
    let text = format!("{}\nlisten.tcp = \"127.0.0.1:{tcp}\"", routes());
    let _process = setup.start_with(origin.address, &text).await;
    assert_eq!(ctl(&setup, &["on"]).await.code, Some(0));

    let client = setup.client().await;
    assert_eq!(client.post("/", vec![b'a'; 400_000]).await.status, 503);

    let address = ([127, 0, 0, 1], tcp).into();
    let mut http1 = Tls::connect(address, "localhost", tls::config(&setup.made.cert_pem, &["http/1.1"])).await.unwrap();
    let post = "POST /shop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400000\r\n\r\n";
    http1.say([post.as_bytes(), &vec![b'a'; 400_000]].concat()).await;
    let head = http1.head().await;
    assert!(head.starts_with("http/1.1 503 ") && head.contains("\r\nretry-after: 300\r\n"), "{head}");
    http1.until("<p>closed").await;

    let over = Tls::connect(address, "localhost", tls::config(&setup.made.cert_pem, &["h2"])).await.unwrap();
    let mut http2 = Http2::over(over, &[]).await;
    let fields = http2::fields(&http2::pseudo("POST", "/shop"));
    http2.say(HEADERS, END_HEADERS, 1, &fields).await;
    http2.say(DATA, 0, 1, &[b'a'; 10_000]).await;
    assert_eq!(http2::status(&http2.find(&[HEADERS]).await.unwrap()), 503);
    http2.say(DATA, END_STREAM, 1, b"end").await;
    assert!(origin.seen().is_empty(), "{}", origin.seen());
}
